//! Without one of the protections, loom finds a schedule that is wrong.

use crate::Protection::{self, *};
use crate::Scenario;
use crate::schedules::*;

macro_rules! wrong_schedules {
    ($($name:ident: $protection:ident in $scenario:ident,)*) => {
        $(#[test]
        #[should_panic]
        fn $name() {
            let scenario: Scenario = $scenario;
            let without: Protection = $protection;
            scenario.explore(Some(without));
        })*
    };
}

wrong_schedules! {
    a_rename_in_two_steps_in_the_layer: Reshape in RENAME_IN_LAYER,
    found_below_a_rename_that_the_store_has: RelocateInFind in RENAMED_THERE,
    read_below_a_rename_that_the_store_has: RelocateInGet in RENAMED_READ,
    missing_in_a_layer_that_was_exchanged: LookAgain in WRITE_AND_READ,
    moved_before_the_exchange: ReshapeInFreeze in WRITE_AND_READ,
    opened_before_a_publication: IsCurrent in PUBLISH,
    registered_before_it_is_compared: RegisterUnderNames in PUBLISH,
    detached_by_the_rename_that_it_follows: RegisterUnderNames in WRITE_RENAMED,
    written_in_place_in_a_frozen_layer: RegisterUnderNames in WRITE_IN_PLACE,
    revoked_and_found_again: UnregisterRevoked in RENAMED_WRITTEN,
}
