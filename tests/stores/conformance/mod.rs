//! Conformance tests of stores (`crates/zarrfs-store/src/lib.rs`): the same cases for each kind.
//!
//! To add a store, add a `Kind` to `fixture.rs` and a line at the end of this file. A case that a kind cannot
//! support (objects that change, names of any bytes) prints a line and is skipped.

mod buckets;
mod consolidated;
mod deleted_store;
mod fixture;
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
mod truncated_bodies;
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

/// Generates a module with the tests of all cases for one kind of store.
macro_rules! conforms {
    ($module:ident, $kind:path) => {
        mod $module {
            use super::*;

            cases! { $kind;
                objects:
                    a_get_returns_all_bytes_of_an_object
                    objects_beyond_the_limit_are_too_large
                    a_missing_key_has_no_object
                    a_prefix_is_a_directory_without_an_object
                    a_key_below_an_object_is_missing
                    a_key_may_be_an_object_and_a_prefix
                    every_byte_range_is_that_slice_of_the_object
                    every_answer_has_the_same_version
                    a_new_content_has_a_new_version
                    an_erased_object_is_missing;
                readers:
                    an_open_object_is_read_anywhere
                    scattered_reads_fill_buffers_up_to_the_end
                    an_open_object_that_is_replaced_reads_as_before_or_fails
                    an_open_object_shows_new_content_only_with_a_new_version
                    an_open_object_survives_its_removal;
                listings:
                    a_listing_has_each_name_once
                    names_with_a_common_start_are_listed_separately
                    a_listing_resumes_after_any_cursor
                    an_empty_store_lists_nothing
                    listing_a_missing_key_fails
                    listing_an_object_fails
                    a_listing_ends_though_the_directory_changes;
                names:
                    names_of_any_bytes_are_listed_and_read
                    differently_spelled_names_are_different_keys
                    long_names_and_deep_keys_are_read
                    keys_that_could_leave_the_store_are_refused;
                threads:
                    many_threads_read_at_once;
                writes:
                    an_object_that_is_put_is_read_and_listed
                    a_file_is_put_like_bytes
                    a_put_on_condition_of_absence_replaces_no_object
                    a_conditional_put_replaces_only_the_matching_version
                    an_erased_key_is_missing_and_unlisted
                    a_conditional_erase_removes_only_the_matching_version
                    only_empty_folders_are_erased
                    odd_names_can_be_put
                    a_folder_is_not_replaced
                    an_open_listing_outlasts_puts
                    an_open_object_is_not_mixed_with_a_put
                    the_probe_of_conditional_puts_leaves_no_object
                    changes_are_noted_by_key
                    one_of_many_puts_on_condition_of_absence_wins
                    no_conditional_put_is_lost
                    one_of_a_conditional_put_and_erase_wins
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
