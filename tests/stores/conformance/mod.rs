//! Conformance tests of stores (`crates/zarrfs-store/src/lib.rs`): the same cases for each kind.
//!
//! To add a store, add a `Kind` to `fixture.rs` and a line at the end of this file. A case that a kind cannot
//! support (objects that change, names of any bytes) prints a line and is skipped.

mod buckets;
mod consolidated;
mod fixture;
mod gone;
mod halves;
mod index_pages;
mod listings;
mod local;
mod missing_answers;
mod names;
mod objects;
mod odd_keys;
mod odd_listings;
mod odd_servers;
mod odd_tags;
mod readers;
mod redirects;
mod servers;
mod sizes_ahead;
mod threads;
mod writes;
mod zip;
mod zipped;

/// Generates a test of each case for one kind of store.
macro_rules! cases {
    ($kind:expr; $($part:ident: $($case:ident)+;)+) => {
        $($(
            #[test]
            fn $case() {
                if $kind.is_here() {
                    super::$part::$case(&$kind);
                }
            }
        )+)+
    };
}

/// Generates a module with every case for one kind of store.
macro_rules! conforms {
    ($module:ident, $kind:path) => {
        mod $module {
            use super::*;

            cases! { $kind;
                objects:
                    all_bytes_of_an_object_are_given
                    objects_beyond_the_limit_are_too_large
                    what_is_missing_is_nothing
                    a_prefix_is_no_object
                    a_key_through_an_object_is_missing
                    a_key_may_be_an_object_and_a_prefix
                    every_range_is_the_slice_it_means
                    every_answer_has_the_same_version
                    another_content_has_another_version
                    an_erased_object_is_missing;
                readers:
                    an_open_object_is_read_anywhere
                    scattered_reads_fill_what_there_is
                    an_open_object_keeps_its_content_or_says_changed
                    an_open_object_shows_no_other_content_under_its_version
                    an_open_object_survives_its_removal;
                listings:
                    a_listing_has_each_name_once
                    names_that_begin_alike_are_apart
                    a_listing_goes_on_after_any_cursor
                    an_empty_store_lists_nothing
                    what_is_not_there_does_not_list
                    objects_do_not_list
                    a_listing_ends_though_the_directory_changes;
                names:
                    any_byte_can_stand_in_a_name
                    names_are_never_another_spelling
                    long_names_and_deep_keys_are_read
                    keys_that_could_leave_the_store_are_refused;
                threads:
                    many_threads_read_at_once;
                writes:
                    what_is_put_is_there
                    a_file_is_put_as_bytes_are
                    what_must_be_absent_is_not_replaced
                    only_what_is_held_is_replaced
                    what_is_erased_is_gone
                    only_what_is_held_is_erased
                    folders_go_when_they_are_empty
                    odd_names_can_be_put
                    a_folder_is_not_replaced
                    an_open_listing_outlasts_puts
                    an_open_object_is_not_mixed_with_what_is_put
                    a_trial_of_conditions_leaves_nothing
                    changes_are_noted_by_key
                    of_many_who_put_what_is_absent_one_wins
                    no_conditional_put_is_lost
                    of_a_put_and_a_removal_one_wins
                    all_bytes_of_a_big_object_are_put;
            }
        }
    };
}

conforms!(local_folder, fixture::LOCAL);
conforms!(local_folder_with_links, fixture::LOCAL_FOLLOWING);
conforms!(memory, fixture::MEMORY);
conforms!(counted_local_folder, fixture::COUNTED_LOCAL);
conforms!(counted_memory, fixture::COUNTED_MEMORY);
conforms!(kept_memory, fixture::KEPT_MEMORY);
conforms!(ahead_of_memory, fixture::AHEAD);
conforms!(memo_of_nothing, fixture::MEMO_OF_NOTHING);
conforms!(memo, fixture::MEMO);
conforms!(zip_stored, fixture::ZIP);
conforms!(zip_deflated, fixture::ZIP_DEFLATED);
conforms!(zip_folder, fixture::ZIP_FOLDER);
conforms!(overlay_over_nothing, fixture::OVERLAY_UPPER);
conforms!(overlay_of_nothing, fixture::OVERLAY_LOWER);
conforms!(overlay_over_half, fixture::OVERLAY_HALF);
conforms!(s3_seaweedfs, buckets::SEAWEEDFS);
conforms!(s3_moto, buckets::MOTO);
conforms!(azure, buckets::AZURITE);
conforms!(google, buckets::FAKE_GCS);
conforms!(webdav, servers::WEBDAV);
conforms!(nginx, servers::NGINX);
conforms!(nginx_with_index_pages, servers::NGINX_AUTOINDEX);
conforms!(apache, servers::APACHE);
conforms!(caddy, servers::CADDY);
conforms!(python_http_server, servers::HTTP_SERVER);
