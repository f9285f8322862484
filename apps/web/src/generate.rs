//! A shop that is made up, with the shapes of a real one.

use std::collections::HashSet;

use crate::catalogue::{Catalogue, Product, Review, User};
use crate::shapes::{
    BOUGHT, BOUGHT_WITH, DESCRIPTION_BYTES, Numbers, PRICE_CENTS, REVIEWS, REVIEWS_BY, STARS, SUMMARY_BYTES,
    TEXT_BYTES, TIMES, TITLE_BYTES,
};

const BRANDS: [&str; 16] = [
    "Alder",
    "Borealis",
    "Cormorant",
    "Dunlin",
    "Elderberry",
    "Fieldfare",
    "Gannet",
    "Harrier",
    "Ibex",
    "Juniper",
    "Kestrel",
    "Linden",
    "Merganser",
    "Nightjar",
    "Osprey",
    "Plover",
];
const KINDS: [&str; 28] = [
    "Lantern",
    "Backpack",
    "Kettle",
    "Notebook",
    "Puzzle",
    "Blanket",
    "Teapot",
    "Compass",
    "Umbrella",
    "Headlamp",
    "Mug",
    "Bottle",
    "Clock",
    "Basket",
    "Candle",
    "Radio",
    "Scarf",
    "Board Game",
    "Toolbox",
    "Pillow",
    "Knife Set",
    "Tripod",
    "Gift Box",
    "Gift Card",
    "Cookbook",
    "Frame",
    "Speaker",
    "Thermos",
];
const QUALITIES: [&str; 24] = [
    "Classic",
    "Small",
    "Large",
    "Folding",
    "Wooden",
    "Blue",
    "Red",
    "Handmade",
    "Travel",
    "Winter",
    "Summer",
    "Light",
    "Steel",
    "Wool",
    "Pack of 2",
    "Pack of 5",
    "for Children",
    "with Case",
    "Second Edition",
    "Refillable",
    "Waterproof",
    "Birthday",
    "Holiday",
    "Quiet",
];
/// The words that the real reviews have most.
const WORDS: [&str; 96] = [
    "gift", "a", "to", "the", "for", "and", "I", "it", "is", "as", "great", "of", "was", "you", "my", "this",
    "on", "with", "in", "love", "they", "are", "can", "that", "have", "so", "like", "at", "good", "or",
    "when", "use", "get", "them", "not", "very", "loved", "worked", "give", "what", "be", "an", "but",
    "these", "nice", "no", "go", "will", "from", "just", "who", "really", "out", "she", "easy", "your",
    "always", "box", "fast", "there", "one", "perfect", "buy", "their", "loves", "any", "more", "it's",
    "don't", "all", "would", "has", "way", "had", "little", "we", "got", "were", "time", "than", "bought",
    "about", "family", "know", "some", "if", "delivery", "arrived", "used", "up", "happy", "product", "much",
    "many", "cute", "birthday",
];
const FIRST: [&str; 20] = [
    "Ada", "Ben", "Chi", "Dora", "Emre", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kim", "Lea", "Milo", "Nia",
    "Oto", "Pia", "Quy", "Rosa", "Sam", "Thu",
];
const LAST: [&str; 20] = [
    "Adler", "Brook", "Costa", "Dang", "Evans", "Fuchs", "Garcia", "Hill", "Ito", "Jansen", "Kaya", "Lopez",
    "Moore", "Nguyen", "Olsen", "Park", "Quist", "Reed", "Silva", "Tran",
];
const COUNTS: [&str; 5] = ["One", "Two", "Three", "Four", "Five"];

/// So many products and reviews, the same in every run.
pub fn generate(products: usize, reviews: usize) -> Catalogue {
    let mut numbers = Numbers(0x6b65_6c69);
    let mut catalogue = Catalogue {
        origin: "generated with the shapes of Amazon's gift cards".into(),
        products: (0..products).map(|number| product(&mut numbers, number)).collect(),
        users: Vec::new(),
        reviews: Vec::with_capacity(reviews),
    };
    bought(&mut numbers, &mut catalogue.products);
    let users = users_of(&mut numbers, reviews, &mut catalogue.users);
    for (product, count) in counts(&mut numbers, products, reviews).into_iter().enumerate() {
        for _ in 0..count {
            let user = users[catalogue.reviews.len()];
            catalogue.reviews.push(Review { product, user, ..review(&mut numbers) });
        }
    }
    catalogue
}

fn product(numbers: &mut Numbers, number: usize) -> Product {
    let brand = numbers.one_of(&BRANDS);
    let bytes = numbers.of(&TITLE_BYTES);
    let mut title = format!("{brand} {}", numbers.one_of(&KINDS));
    while title.len() < bytes {
        title = format!("{title}, {}", numbers.one_of(&QUALITIES));
    }
    let cents = numbers.of(&PRICE_CENTS);
    let description = numbers.of(&DESCRIPTION_BYTES);
    Product {
        id: format!("G{number:06}"),
        title,
        brand: brand.into(),
        price: format!("{}.{:02}", cents / 100, cents % 100),
        description: prose(numbers, description),
        bought: Vec::new(),
    }
}

/// Text of so many bytes, at most.
fn prose(numbers: &mut Numbers, bytes: usize) -> String {
    let mut text = String::new();
    let mut begins = true;
    while text.len() < bytes {
        let word = numbers.one_of(&WORDS);
        let (first, rest) = word.split_at(1);
        text += &if begins { first.to_uppercase() } else { first.into() };
        text += rest;
        begins = numbers.below(9) == 0;
        text += if begins { ". " } else { " " };
    }
    text.truncate(bytes);
    text.trim_end().into()
}

/// Draws what buyers of each product bought too: the more often the more they were bought with others at all.
fn bought(numbers: &mut Numbers, products: &mut [Product]) {
    let (mut sum, mut popular) = (0, 0);
    let mut add = |_| {
        let weight = numbers.of(&BOUGHT_WITH);
        popular += usize::from(weight > 0);
        sum += weight;
        sum
    };
    let sums: Vec<usize> = products.iter().map(&mut add).collect();
    for index in 0..products.len() {
        let wanted = numbers.of(&BOUGHT).min(popular / 2);
        let mut seen = HashSet::from([index]);
        while products[index].bought.len() < wanted {
            let at = numbers.below(sum);
            let other = sums.partition_point(|upto| *upto <= at);
            if seen.insert(other) {
                products[index].bought.push(other);
            }
        }
    }
}

/// Who writes which review, in no order.
fn users_of(numbers: &mut Numbers, reviews: usize, users: &mut Vec<User>) -> Vec<usize> {
    let mut writers = Vec::with_capacity(reviews);
    while writers.len() < reviews {
        let count = numbers.of(&REVIEWS_BY).min(reviews - writers.len());
        writers.extend(std::iter::repeat_n(users.len(), count));
        let name = format!("{} {}", numbers.one_of(&FIRST), numbers.one_of(&LAST));
        users.push(User { id: format!("U{:06}", users.len()), name });
    }
    for index in (1..writers.len()).rev() {
        writers.swap(index, numbers.below(index + 1));
    }
    writers
}

/// How many reviews each product has: of the shape, but as many as there are.
fn counts(numbers: &mut Numbers, products: usize, reviews: usize) -> Vec<usize> {
    let shape: Vec<usize> = (0..products).map(|_| numbers.of(&REVIEWS)).collect();
    let sum: usize = shape.iter().sum();
    let (mut before, mut given) = (0, 0);
    shape
        .iter()
        .map(|count| {
            before += count;
            let upto = before * reviews / sum;
            let count = upto - given;
            given = upto;
            count
        })
        .collect()
}

fn review(numbers: &mut Numbers) -> Review {
    let at = numbers.below(STARS.iter().sum::<u32>() as usize) as u32;
    let sums = STARS.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    let rating = sums.take_while(|sum| *sum <= at).count() + 1;
    let summary = match numbers.of(&SUMMARY_BYTES) {
        10 => format!("{} Star{}", COUNTS[rating - 1], if rating == 1 { "" } else { "s" }),
        bytes => prose(numbers, bytes),
    };
    let (first, last) = TIMES;
    let time = first + numbers.below((last - first) as usize) as i64;
    let bytes = numbers.of(&TEXT_BYTES);
    let text = prose(numbers, bytes);
    Review { product: 0, user: 0, rating: rating as u8, time, summary, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_what_was_asked_for() {
        let catalogue = generate(500, 8000);
        assert_eq!((catalogue.products.len(), catalogue.reviews.len()), (500, 8000));
        assert!(catalogue.reviews.iter().all(|review| review.user < catalogue.users.len()));
        let mut with = vec![0; 500];
        catalogue.products.iter().flat_map(|product| &product.bought).for_each(|other| with[*other] += 1);
        with.sort_unstable();
        assert_eq!(with[250], 0, "most are bought with nothing");
        assert!(with[499] > 40, "some with many");
        let most = catalogue.reviews_of_products().iter().map(Vec::len).max();
        assert!(most > Some(40), "{most:?}");
    }

    #[test]
    fn small_shops_can_be_had() {
        for (products, reviews) in [(1, 0), (1, 1), (2, 5), (10, 3)] {
            let catalogue = generate(products, reviews);
            assert_eq!((catalogue.products.len(), catalogue.reviews.len()), (products, reviews));
        }
    }
}
