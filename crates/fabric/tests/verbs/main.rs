//! The conformance suite on the verbs fabric, and what can go wrong there. `make test-verbs` gives it a
//! device.

mod bed;
mod faults;
mod streams;

use bed::Verbs;

kelix_fabric::conformance_tests! {
    bed: Verbs,
    ordered_placement: no,
    ordered_loads: no,
    reads_at_once: no,
    notices_clients: no,
}
