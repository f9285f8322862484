//! The conformance suite on verbs. Needs a device: `./run` gives it one.

mod unordered {
    use kelix_verbs_spike::bed::Verbs;

    kelix_fabric::conformance_tests! {
        bed: Verbs { ordered: false },
        ordered_placement: no,
        ordered_loads: no,
        reads_at_once: no,
        notices_clients: yes,
    }
}

/// The same with the first word of each WRITE posted behind the others.
mod in_two_pieces {
    use kelix_verbs_spike::bed::Verbs;

    kelix_fabric::conformance_tests! {
        bed: Verbs { ordered: true },
        ordered_placement: yes,
        ordered_loads: no,
        reads_at_once: no,
        notices_clients: yes,
    }
}
