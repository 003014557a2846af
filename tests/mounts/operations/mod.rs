//! File operations of programs, on a `Vfs` in this process and on a mount.
//!
//! Most test cases run in both ways. Operations that need a kernel (writes, programs such as tar) and stores that fail
//! or hang have tests of their own.
//!
//! Mounts need root and /dev/fuse (`common/needs.rs`).

mod backend;
mod changes;
mod content;
mod faults;
mod faulty;
mod fixture;
mod handles;
mod hangs;
mod in_process;
mod late_changes;
mod listings;
mod mounted;
mod moving;
mod names;
mod reopened;
mod replaced;
mod roots;
mod swapping;
mod tools;
mod without_waiting;
mod writes;

/// Defines two tests for each case: one on a `Vfs` in this process, and one on a mount.
macro_rules! on_both {
    ($($part:ident: $($case:ident)+;)+) => {
        mod without_kernel {
            $($(
                #[test]
                fn $case() {
                    super::$part::$case(&super::in_process::enter);
                }
            )+)+
        }
        mod with_kernel {
            $($(
                #[test]
                fn $case() {
                    if crate::common::needs::mounts() {
                        super::$part::$case(&super::mounted::enter);
                    }
                }
            )+)+
        }
    };
}

on_both! {
    content:
        file_sizes_match_the_contents
        any_range_is_the_slice_of_the_whole
        many_threads_read_the_right_bytes
        chunk_files_are_cut_at_the_edge
        arrays_without_dimensions_or_elements_can_be_read
        opening_a_file_of_an_unsupported_array_fails
        stat_and_open_fail_for_a_file_of_unknown_length;
    names:
        a_broken_node_does_not_affect_other_nodes
        a_broken_node_lists_its_documents_and_the_error
        the_control_directory_resolves_and_is_not_listed
        counters_have_a_constant_size
        a_child_node_takes_precedence_over_a_file_of_the_group
        folders_without_documents_are_groups
        links_inside_the_store_are_followed
        links_that_leave_the_store_are_refused
        missing_and_too_long_names_have_the_right_errno;
    listings:
        directories_have_the_kind_and_inode_of_stat
        listings_and_lookups_show_the_same_names
        a_listing_continues_after_any_cursor
        a_hundred_thousand_chunks_are_listed_completely;
    changes:
        a_changed_chunk_is_seen
        a_shard_overwritten_in_place_never_reads_as_a_mixture
        an_added_and_a_removed_chunk_are_seen
        a_longer_array_is_seen
        added_changed_and_removed_keys_are_seen
        a_file_that_grew_is_read_to_its_end
        bytes_of_a_replaced_file_never_reach_new_readers
        bytes_of_an_overwritten_file_never_reach_old_readers;
    handles:
        descriptors_of_the_store_are_closed_after_use
        a_deleted_file_stays_readable_while_it_is_open;
}
