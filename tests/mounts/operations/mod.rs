//! File operations of programs, on a `Vfs` in this process and on a mount.
//!
//! Both run one list of cases. Operations that need a kernel (writes, programs such as tar) and stores that fail or
//! hang have tests of their own.
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

/// Makes two tests of each case: one in this process, one on a mount.
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
        sizes_are_those_of_the_content
        any_range_is_the_slice_of_the_whole
        many_threads_read_what_is_there
        chunk_files_are_cut_at_the_edge
        arrays_without_dimension_or_element_have_their_chunks
        what_does_not_decode_says_so_when_it_is_opened
        a_file_whose_length_cannot_be_told_has_none;
    names:
        a_broken_node_harms_only_itself
        a_broken_node_lists_and_says_what_is_wrong
        the_control_directory_resolves_and_is_not_listed
        counters_have_a_constant_size
        a_child_wins_over_a_file_of_the_group
        folders_without_documents_are_groups
        links_inside_are_followed
        links_that_leave_are_refused
        what_is_missing_has_its_errno;
    listings:
        directories_have_the_kind_and_inode_of_stat
        what_is_listed_is_what_can_be_looked_up
        a_listing_goes_on_after_any_cursor
        a_hundred_thousand_chunks_list_wholly;
    changes:
        a_changed_chunk_is_seen
        a_shard_overwritten_in_place_is_never_a_mixture
        an_added_and_a_removed_chunk_are_seen
        a_longer_array_is_seen
        keys_that_come_and_go_are_seen
        a_file_that_grew_is_never_cut
        bytes_of_a_replaced_file_never_reach_new_readers
        bytes_of_an_overwritten_file_never_reach_old_readers;
    handles:
        what_is_opened_is_closed
        a_deleted_file_stays_readable_while_it_is_open;
}
