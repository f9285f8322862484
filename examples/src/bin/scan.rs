//! An ordered table: keys in order, and ranges of them. Clients find the first key with a small learned
//! model, and read leaf after leaf from the server's memory.

use kelix::{Rows, Scan, TableKind};

fn main() -> kelix::Result<()> {
    let client = kelix_examples::connect()?;
    let mut session = client.session()?;
    let readings = session.create_table_of(TableKind::Strings, "readings")?;

    for day in 1..=30 {
        for sensor in ["attic", "cellar"] {
            let key = format!("{sensor}/2026-11-{day:02}");
            session.put(readings, key.as_bytes(), format!("{} C", day % 7 + 12).as_bytes())?;
        }
    }

    // The buffer is used again from scan to scan.
    let mut rows = Rows::new();
    let week = Scan::prefix(b"cellar/").range(b"cellar/2026-11-08"..b"cellar/2026-11-15");
    session.scan_into(readings, &week, &mut rows)?;
    for index in 0..rows.len() {
        println!(
            "{}: {}",
            String::from_utf8_lossy(rows.key(index)),
            String::from_utf8_lossy(rows.value(index))
        );
    }
    println!("{} keys in all", session.count(readings, &Scan::all())?);
    Ok(())
}
