//! Without one of the protections, loom finds a schedule that is wrong.

use crate::Protection::{self, *};
use crate::Scenario;
use crate::schedules::*;

macro_rules! wrong_schedules {
    ($($name:ident: $protection:ident in $scenario:ident, $bound:expr;)*) => {
        $(#[test]
        #[should_panic(expected = "wrong: ")]
        fn $name() {
            let scenario: Scenario = $scenario;
            let without: Protection = $protection;
            let all = Scenario {
                preemptions: $bound,
                ..scenario
            };
            all.explore(Some(without));
        })*
    };
}

wrong_schedules! {
    a_rename_in_two_steps_in_the_layer: Reshape in RENAME_IN_LAYER, Some(3);
    found_below_a_rename_that_the_store_has: RelocateInFind in RENAMED_THERE, None;
    read_below_a_rename_that_the_store_has: RelocateInGet in RENAMED_READ, None;
    missing_in_a_layer_that_was_exchanged: LookAgain in WRITE_AND_READ, Some(3);
    moved_before_the_exchange: ReshapeInFreeze in WRITE_AND_READ, Some(3);
    registered_though_it_was_replaced: IsCurrent in REPLACED_AND_OPENED, Some(3);
    opened_though_it_was_revoked: UnregisterRevoked in RENAMED_WRITTEN, Some(3);
    taken_out_by_a_file_that_was_never_entered: UnregisterItself in WRITE_AND_OPEN, Some(3);
    registered_before_it_is_compared: RegisterUnderNames in PUBLISH, Some(3);
    detached_by_the_rename_that_it_follows: RegisterUnderNames in WRITE_RENAMED, Some(3);
    written_in_place_in_a_frozen_layer: RegisterUnderNames in WRITE_IN_PLACE, Some(3);
}
