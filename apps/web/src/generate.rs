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
/// What reviews say: the shortest, and longer ones.
const PHRASES: [&str; 31] = [
    "A",
    "A+",
    "Top",
    "Nice",
    "Good",
    "Great",
    "Love it",
    "Perfect",
    "As told",
    "Good buy",
    "Works well",
    "Great gift",
    "Very happy",
    "Nice colour",
    "Came on time",
    "Just as shown",
    "Easy to give",
    "Good as always",
    "My sister loves it",
    "Great for travel",
    "Exactly as ordered",
    "Would buy it again",
    "Does just what it should",
    "Much larger than I thought",
    "Arrived in two days",
    "Looks better than on the picture",
    "Quick delivery and a good price",
    "A present that everybody can use",
    "Exactly what I had been looking for",
    "My whole family likes it very much",
    "Bought it twice and would do so again",
];
const OPINIONS: [&str; 24] = [
    "I bought it for my mother, and she uses it every day.",
    "It arrived a day early and well packed.",
    "The colour is a little darker than on the picture.",
    "We have had it for a year now, and it still looks like new.",
    "Smaller than I thought, but that is what the measures say.",
    "My children fight over who may use it first.",
    "The handle came loose after a month; the shop sent another one at once.",
    "Easy to clean, easy to put away.",
    "I would give it four and a half stars if I could.",
    "It does what it should, no more and no less.",
    "The box was damaged, what was in it was fine.",
    "For this price there is nothing better.",
    "I have bought three of them by now, all as gifts.",
    "It was a present for a colleague who has everything, and he did not have this.",
    "The second one I own, since the first has been borrowed and never came back.",
    "Light enough to take along wherever we go.",
    "You may find it cheaper, but not with this quality.",
    "It took me a while to see how it opens.",
    "Delivery took two weeks, which is my only complaint.",
    "It looks just as good in our kitchen as it did in the shop.",
    "I was not sure about it at first, and now I would not want to miss it.",
    "The instructions are short and good.",
    "Our neighbours asked where we had it from.",
    "It stands on my desk, and everybody picks it up.",
];
/// What descriptions say.
const FEATURES: [&str; 20] = [
    "Made by hand in small numbers, so no two are quite the same.",
    "Fits into any bag and weighs next to nothing.",
    "Comes in a box that is a present by itself.",
    "All parts can be replaced, and are sold for at least ten years.",
    "Tested for three winters before we sold the first.",
    "Wipe it with a damp cloth; it needs no other care.",
    "Designed for small kitchens and large families.",
    "The surface is oiled and not lacquered, and gets better with the years.",
    "Five years of guarantee, two on moving parts.",
    "Suitable for children from the age of six.",
    "Folds flat when it is not needed.",
    "The lid closes tightly, also when it is carried upside down.",
    "Available in four colours and two sizes.",
    "With a strap that can be taken off.",
    "No batteries are needed.",
    "What is left over from making it is made into smaller things.",
    "Keeps warm for eight hours and cold for twelve.",
    "Instructions in six languages are printed on the inside of the lid.",
    "A favourite of our customers since 1998.",
    "Sold together with a cloth and a brush.",
];
const FIRST: [&str; 20] = [
    "Ada", "Ben", "Chi", "Dora", "Emre", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kim", "Lea", "Milo", "Nia",
    "Oto", "Pia", "Quy", "Rosa", "Sam", "Thu",
];
const LAST: [&str; 20] = [
    "Adler", "Brook", "Costa", "Dang", "Evans", "Fuchs", "Garcia", "Hill", "Ito", "Jansen", "Kaya", "Lopez",
    "Moore", "Nguyen", "Olsen", "Park", "Quist", "Reed", "Silva", "Tran",
];
/// Texts that are shorter than this have no sentences.
const SHORT_BYTES: usize = 40;
/// So many bytes less than what was drawn a phrase has at most.
const SHORTER_BYTES: usize = 8;
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
        let quality = numbers.one_of(&QUALITIES);
        if !title.ends_with(quality) {
            title = format!("{title}, {quality}");
        }
    }
    let cents = numbers.of(&PRICE_CENTS);
    let description = numbers.of(&DESCRIPTION_BYTES);
    Product {
        id: format!("G{number:06}"),
        title,
        brand: brand.into(),
        price: format!("{}.{:02}", cents / 100, cents % 100),
        description: prose(numbers, &FEATURES, description),
        bought: Vec::new(),
    }
}

/// Text of so many bytes or a few less: a phrase, or sentences and of the last as many words as have room.
fn prose(numbers: &mut Numbers, sentences: &[&str], bytes: usize) -> String {
    if bytes < SHORT_BYTES {
        let fits = |phrase: &&str| phrase.len() <= bytes && phrase.len() + SHORTER_BYTES > bytes;
        let fitting: Vec<&str> = PHRASES.into_iter().filter(fits).collect();
        return if fitting.is_empty() { String::new() } else { numbers.one_of(&fitting).into() };
    }
    let mut text = String::new();
    while text.len() <= bytes {
        text += numbers.one_of(sentences);
        text += " ";
    }
    let end = text[..=bytes].rfind(' ').unwrap_or(bytes);
    text.truncate(end);
    text.trim_end_matches([',', ' ']).into()
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
    for (index, product) in products.iter_mut().enumerate() {
        let wanted = numbers.of(&BOUGHT).min(popular / 2);
        let mut seen = HashSet::from([index]);
        while product.bought.len() < wanted {
            let at = numbers.below(sum);
            let other = sums.partition_point(|upto| *upto <= at);
            if seen.insert(other) {
                product.bought.push(other);
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
        bytes => prose(numbers, &OPINIONS, bytes),
    };
    let (first, last) = TIMES;
    let time = first + numbers.below((last - first) as usize) as i64;
    let bytes = numbers.of(&TEXT_BYTES);
    let text = prose(numbers, &OPINIONS, bytes);
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
    fn texts_have_the_bytes_that_were_drawn() {
        let mut numbers = Numbers(3);
        for bytes in 0..2000 {
            let text = prose(&mut numbers, &OPINIONS, bytes);
            assert!(text.len() <= bytes && text.len() + 16 > bytes, "{bytes}: {text:?}");
        }
    }

    #[test]
    fn small_shops_can_be_had() {
        for (products, reviews) in [(1, 0), (1, 1), (2, 5), (10, 3)] {
            let catalogue = generate(products, reviews);
            assert_eq!((catalogue.products.len(), catalogue.reviews.len()), (products, reviews));
        }
    }
}
