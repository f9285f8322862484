//! Where things are: positions on the globe, the cells that it is cut into, and the plane on which pieces of
//! streets are measured.

use std::str::FromStr;

use geo::{Distance, Euclidean, Haversine, InterpolatableLine, Line, LineLocatePoint, Point};
use serde::{Serialize, Serializer};

/// Units of a [`Position`] in a degree.
const UNITS: f64 = 1e7;
/// Units once around the globe, and to the meridian where east meets west.
const TURN: i64 = 3_600_000_000;
const HALF: i64 = TURN / 2;
/// Metres of a degree of latitude, on the globe that [`Haversine`] measures.
const DEGREE_METRES: f64 = 6_371_008.771_415 * std::f64::consts::PI / 180.0;
/// Metres from a cell to the next, at least. Nothing is looked for further away than this, so a cell and
/// those beside it are enough.
pub const CELL_METRES: f64 = 100.0;

/// Units from one longitude east to another, the shorter way around the globe; below zero: west.
fn east(from: i32, to: i32) -> i32 {
    ((i64::from(to) - i64::from(from) + HALF).rem_euclid(TURN) - HALF) as i32
}

/// The longitude of so many units east of Greenwich, however often that goes around the globe.
pub fn longitude(units: i64) -> i32 {
    if (-HALF..=HALF).contains(&units) {
        units as i32
    } else {
        ((units + HALF).rem_euclid(TURN) - HALF) as i32
    }
}

/// Latitude and longitude as OpenStreetMap has them: whole numbers of 1e-7 degrees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position {
    /// North.
    pub lat: i32,
    /// East.
    pub lon: i32,
}

impl Position {
    /// From degrees. `None`: there is no such place.
    pub fn of(lat: f64, lon: f64) -> Option<Position> {
        let there = (-90.0..=90.0).contains(&lat) && (-180.0..=180.0).contains(&lon);
        let unit = |degrees: f64| (degrees * UNITS).round() as i32;
        there.then(|| Position { lat: unit(lat), lon: unit(lon) })
    }

    /// Latitude and longitude in degrees.
    pub fn degrees(self) -> (f64, f64) {
        (f64::from(self.lat) / UNITS, f64::from(self.lon) / UNITS)
    }

    fn point(self) -> Point {
        let (lat, lon) = self.degrees();
        Point::new(lon, lat)
    }

    /// Metres to another place, along the globe.
    pub fn metres_to(self, other: Position) -> f64 {
        Haversine.distance(self.point(), other.point())
    }
}

impl FromStr for Position {
    type Err = String;

    /// `LAT,LON` in degrees.
    fn from_str(text: &str) -> Result<Position, String> {
        let degrees = |text: &str| text.trim().parse::<f64>().ok();
        let place = text.split_once(',').and_then(|(lat, lon)| Position::of(degrees(lat)?, degrees(lon)?));
        place.ok_or_else(|| format!("\"{text}\" is no place; write LAT,LON in degrees, as 60.1699,24.9384"))
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (lat, lon) = self.degrees();
        write!(f, "{lat:.6},{lon:.6}")
    }
}

impl Serialize for Position {
    /// As `[latitude, longitude]`, as Leaflet wants it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.degrees().serialize(serializer)
    }
}

/// A piece of the globe, some [`CELL_METRES`] each way: its row and its column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cell {
    /// From south to north.
    pub row: i32,
    /// From west to east, and on from the last to the first.
    pub column: i32,
}

impl Cell {
    /// As a number.
    pub fn number(self) -> u64 {
        u64::from(self.row as u32) << 32 | u64::from(self.column as u32)
    }

    /// The one of this number.
    pub fn numbered(number: u64) -> Cell {
        Cell { row: (number >> 32) as u32 as i32, column: number as u32 as i32 }
    }
}

/// How the globe is cut into cells: units of latitude from one row to the next, and how many columns there
/// are around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    rows: i32,
    columns: i32,
}

impl Grid {
    /// Cells that are wide enough up to this latitude, north or south.
    pub fn up_to(lat: i32) -> Grid {
        let rows = CELL_METRES / DEGREE_METRES * UNITS;
        let narrowing = (f64::from(lat) / UNITS).to_radians().cos().max(0.01);
        Grid { rows: rows.ceil() as i32, columns: (TURN as f64 * narrowing / rows) as i32 }
    }

    /// Columns around the globe, which is all that has to be known of it.
    pub fn columns(self) -> i32 {
        self.columns
    }

    /// The one that has so many columns.
    pub fn with_columns(columns: i32) -> Grid {
        Grid { columns: columns.max(1), ..Grid::up_to(0) }
    }

    /// The cell of a place.
    pub fn cell(self, at: Position) -> Cell {
        Cell { row: at.lat.div_euclid(self.rows), column: self.column(at.lon) }
    }

    fn column(self, lon: i32) -> i32 {
        let columns = i64::from(self.columns);
        ((i64::from(lon) + HALF) * columns / TURN).clamp(0, columns - 1) as i32
    }

    /// The eight beside a cell.
    pub fn beside(self, cell: Cell) -> impl Iterator<Item = Cell> {
        let Cell { row, column } = cell;
        let first = Cell { row: row - 1, column: (column - 1).rem_euclid(self.columns) };
        let last = Cell { row: row + 1, column: (column + 1) % self.columns };
        self.between(first, last).filter(move |beside| *beside != cell)
    }

    /// Units of latitude from one row to the next, and of longitude from one column to the next.
    pub fn steps(self) -> (i32, i32) {
        (self.rows, (TURN / i64::from(self.columns) + 1) as i32)
    }

    /// The cells that have something within so many metres of a place, its own first.
    pub fn around(self, at: Position, metres: f64, cells: &mut Vec<Cell>) {
        let own = self.cell(at);
        let plane = Plane::around(at);
        // Near a pole, beyond all streets, a cell is narrower than that.
        let (lat, lon) = ((metres / plane.lat).ceil() as i32, (metres / plane.lon).ceil() as i64);
        let lon = lon.min(TURN / i64::from(self.columns));
        let first = self.cell(Position { lat: at.lat - lat, lon: longitude(i64::from(at.lon) - lon) });
        let last = self.cell(Position { lat: at.lat + lat, lon: longitude(i64::from(at.lon) + lon) });
        cells.clear();
        cells.push(own);
        cells.extend(self.between(first, last).filter(|cell| *cell != own));
    }

    /// All cells of a rectangle, from west to east.
    pub fn between(self, first: Cell, last: Cell) -> impl Iterator<Item = Cell> {
        let wide = (last.column - first.column).rem_euclid(self.columns);
        let column = move |east| (first.column + east) % self.columns;
        (first.row..=last.row)
            .flat_map(move |row| (0..=wide).map(move |east| Cell { row, column: column(east) }))
    }

    /// The cells that a line between two places goes through, the shorter way around the globe.
    pub fn along(self, [a, b]: [Position; 2], mut each: impl FnMut(Cell)) {
        let east = i64::from(east(a.lon, b.lon));
        if i64::from(a.lon) + east == i64::from(b.lon) {
            return self.along_one_side([a, b], each);
        }
        // The line goes over the meridian where east meets west.
        let meridian = if east > 0 { HALF } else { -HALF } as i32;
        let share = f64::from(meridian - a.lon) / east as f64;
        let lat = a.lat + (f64::from(b.lat - a.lat) * share).round() as i32;
        self.along_one_side([a, Position { lat, lon: meridian }], &mut each);
        self.along_one_side([Position { lat, lon: -meridian }, b], each);
    }

    fn along_one_side(self, [a, b]: [Position; 2], mut each: impl FnMut(Cell)) {
        let (south, north) = if a.lat <= b.lat { (a, b) } else { (b, a) };
        let slope = f64::from(north.lon - south.lon) / f64::from((north.lat - south.lat).max(1));
        for row in self.cell(south).row..=self.cell(north).row {
            let (from, to) = (row * self.rows, (row + 1) * self.rows);
            let lon_at = |lat: i32| south.lon + (f64::from(lat - south.lat) * slope).round() as i32;
            // Within a row of cells a line goes from where it comes in to where it goes out.
            let enters = if from <= south.lat { south.lon } else { lon_at(from) };
            let leaves = if to > north.lat { north.lon } else { lon_at(to) };
            let (west, east) = (enters.min(leaves), enters.max(leaves));
            for column in self.column(west)..=self.column(east) {
                each(Cell { row, column });
            }
        }
    }
}

/// The neighbourhood of a place as a plane, in metres from there.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    origin: Position,
    /// Metres of a unit.
    lat: f64,
    lon: f64,
}

/// Where on a line a place is, or would be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Foot {
    /// From the line's beginning, as a share of its length.
    pub share: f64,
    /// Metres from the place.
    pub metres: f64,
}

impl Plane {
    /// The one around a place.
    pub fn around(origin: Position) -> Plane {
        let lat = DEGREE_METRES / UNITS;
        let lon = lat * (f64::from(origin.lat) / UNITS).to_radians().cos().max(1e-6);
        Plane { origin, lat, lon }
    }

    /// A place in metres east and north of the origin.
    pub fn point(self, at: Position) -> Point {
        let (east, north) = (east(self.origin.lon, at.lon), at.lat - self.origin.lat);
        Point::new(f64::from(east) * self.lon, f64::from(north) * self.lat)
    }

    /// The place so many metres east and north of the origin.
    pub fn position(self, point: Point) -> Position {
        let unit = |metres: f64, each: f64| (metres / each).round() as i32;
        let Position { lat, lon } = self.origin;
        let east = i64::from(unit(point.x(), self.lon));
        Position { lat: lat + unit(point.y(), self.lat), lon: longitude(i64::from(lon) + east) }
    }

    fn line(self, [a, b]: [Position; 2]) -> Line {
        Line::new(self.point(a), self.point(b))
    }

    /// The place of a line that is nearest to the origin.
    pub fn foot(self, ends: [Position; 2]) -> Foot {
        let (line, here) = (self.line(ends), Point::new(0.0, 0.0));
        let share = line.line_locate_point(&here).unwrap_or(0.0);
        let at = Point::from(line.start + line.delta() * share);
        Foot { share, metres: Euclidean.distance(&here, &at) }
    }

    /// Whether the origin is to the left of a line.
    pub fn is_left_of(self, ends: [Position; 2]) -> bool {
        self.line(ends).determinant() > 0.0
    }
}

/// The place on a line at a share of its length.
pub fn on_line(ends: [Position; 2], share: f64) -> Position {
    let plane = Plane::around(ends[0]);
    let line = plane.line(ends);
    plane.position(line.point_at_ratio_from_start(&Euclidean, share))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Position = Position { lat: 601_699_000, lon: 249_384_000 };

    #[test]
    fn a_place_is_read_as_it_is_written() {
        assert_eq!("60.1699,24.9384".parse(), Ok(HERE));
        assert_eq!(HERE.to_string().parse(), Ok(HERE));
        for wrong in ["", "60", "60;24", "91,0", "0,181", "60,x", "NaN,0"] {
            assert!(wrong.parse::<Position>().unwrap_err().contains("LAT,LON"), "{wrong}");
        }
    }

    #[test]
    fn the_plane_agrees_with_the_globe() {
        let plane = Plane::around(HERE);
        for (east, north) in [(50.0, 0.0), (0.0, 50.0), (-70.0, 30.0)] {
            let there = plane.position(Point::new(east, north));
            let metres = f64::hypot(east, north);
            assert!((HERE.metres_to(there) - metres).abs() < 0.03, "{} is {metres}", HERE.metres_to(there));
        }
    }

    #[test]
    fn a_foot_is_on_the_line_and_has_a_side() {
        let plane = Plane::around(HERE);
        let at = |east, north| plane.position(Point::new(east, north));
        let north = [at(10.0, -20.0), at(10.0, 60.0)];
        let foot = plane.foot(north);
        assert!((foot.share - 0.25).abs() < 1e-3 && (foot.metres - 10.0).abs() < 0.02, "{foot:?}");
        assert!(plane.is_left_of(north));
        assert!(!plane.is_left_of([north[1], north[0]]));
        assert!(on_line(north, foot.share).metres_to(at(10.0, 0.0)) < 0.03);
        // Beyond its end the end is nearest.
        assert_eq!(plane.foot([at(0.0, 30.0), at(0.0, 60.0)]).share, 0.0);
    }

    #[test]
    fn cells_around_a_place_cover_what_is_near() {
        let grid = Grid::up_to(HERE.lat);
        let plane = Plane::around(HERE);
        let mut cells = Vec::new();
        for step in 0..200 {
            let (from, angle) = (plane.position(Point::new(f64::from(step) * 7.0, 13.0)), f64::from(step));
            grid.around(from, CELL_METRES, &mut cells);
            assert_eq!(cells[0], grid.cell(from));
            let beside: Vec<Cell> = grid.beside(cells[0]).collect();
            assert!(cells[1..].iter().all(|cell| beside.contains(cell)), "no further than beside");
            let off = Point::new(angle.cos(), angle.sin()) * (CELL_METRES - 0.1);
            let there = Plane::around(from).position(off);
            assert!(cells.contains(&grid.cell(there)));
        }
        assert_eq!(Cell::numbered(cells[0].number()), cells[0]);
        let west = Cell { row: -3, column: -70_000 };
        assert_eq!(Cell::numbered(west.number()), west);
    }

    /// In Fiji a street is on both sides of the meridian where 180 degrees east are 180 degrees west.
    #[test]
    fn east_meets_west() {
        let at = |lon| Position { lat: -168_000_000, lon };
        let (grid, mut cells) = (Grid::up_to(at(0).lat), Vec::new());
        for lon in (-12_000..=12_000).step_by(500) {
            let here = at(longitude(HALF + lon));
            grid.around(here, CELL_METRES, &mut cells);
            let beside: Vec<Cell> = grid.beside(cells[0]).collect();
            assert_eq!(beside.len(), 8);
            assert!(cells[1..].iter().all(|cell| beside.contains(cell)), "no further than beside");
            for metres in [-99.0, 99.0] {
                let there = Plane::around(here).position(Point::new(metres, 0.0));
                assert!(cells.contains(&grid.cell(there)), "{here} {there}");
                assert!((here.metres_to(there) - 99.0).abs() < 0.1);
            }
        }
        let (east, west) = (at(1_799_990_000), at(-1_799_990_000));
        let foot = Plane::around(at(1_800_000_000)).foot([east, west]);
        assert!((foot.share - 0.5).abs() < 1e-3 && foot.metres < 0.01, "{foot:?}");
        assert_eq!(Plane::around(at(-1_800_000_000)).foot([east, west]), foot);
        assert!(on_line([west, east], 0.75).metres_to(east) < 60.0);
        assert_eq!(
            [longitude(HALF), longitude(HALF + 1), longitude(-HALF - TURN)],
            [HALF, 1 - HALF, -HALF].map(|n| n as i32)
        );
    }

    #[test]
    fn a_line_goes_through_the_cells_of_its_places() {
        let grid = Grid::up_to(HERE.lat);
        for ends in [
            [HERE, Position { lat: HERE.lat + 51_234, lon: HERE.lon - 90_321 }],
            [HERE, Position { lat: HERE.lat, lon: HERE.lon + 70_000 }],
            [HERE, Position { lat: HERE.lat - 70_000, lon: HERE.lon }],
            [Position { lat: 100, lon: -5 }, Position { lat: -80_000, lon: 9_000 }],
            [
                Position { lat: 601_000_000, lon: 1_799_980_000 },
                Position { lat: 601_030_000, lon: -1_799_950_000 },
            ],
            [
                Position { lat: 601_000_000, lon: -1_799_980_000 },
                Position { lat: 601_030_000, lon: 1_799_950_000 },
            ],
            [
                Position { lat: 601_000_000, lon: 1_800_000_000 },
                Position { lat: 601_000_000, lon: -1_799_950_000 },
            ],
        ] {
            let mut cells = Vec::new();
            grid.along(ends, |cell| cells.push(cell));
            let places = (0..=1000).map(|share| on_line(ends, f64::from(share) / 1000.0));
            let missing = places.filter(|at| !cells.contains(&grid.cell(*at))).count();
            // A place on the very edge may be rounded into the next cell.
            assert!(missing <= 2, "{missing} of 1001 places of {ends:?}");
            let unique: std::collections::BTreeSet<_> = cells.iter().collect();
            assert_eq!(unique.len(), cells.len(), "each once");
        }
    }
}
