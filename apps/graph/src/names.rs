//! Names of users, who have none in files of edges: each has one of these, by number.

const NAMES: [&str; 64] = [
    "Ada", "Alan", "Amara", "Anh", "Barbara", "Bela", "Carlos", "Chau", "Chen", "Clara", "Dana", "Dennis",
    "Diego", "Edsger", "Elena", "Emeka", "Emil", "Fatima", "Frances", "Giulia", "Grace", "Hai", "Hedy",
    "Hugo", "Ines", "Ivan", "Jamal", "Jean", "Jin", "John", "Kofi", "Lan", "Leila", "Leslie", "Linh", "Luca",
    "Magnus", "Maria", "Marie", "Mei", "Minh", "Mira", "Niklaus", "Noor", "Olga", "Omar", "Paolo", "Priya",
    "Quang", "Radia", "Ravi", "Rosa", "Sofia", "Sven", "Tariq", "Thea", "Tim", "Tony", "Uma", "Vera", "Wei",
    "Yuki", "Zara", "Zuse",
];

/// The name of a user. Numbers next to each other have different ones.
pub fn name(user: u32) -> &'static str {
    NAMES[(u64::from(user).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
}

/// Whether anybody has this name.
pub fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}
