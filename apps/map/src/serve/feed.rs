//! What drives the page: points that come as time goes on, faster than it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix_apps::{Failure, text};
use serde_json::json;

use super::App;
use super::answers::MINUTES;
use crate::congestion::{Stream, follow, minute_of};
use crate::matching::Matcher;
use crate::network::Network;
use crate::points::Trace;
use crate::simulate::{Simulation, stream};
use crate::trace::{Fix, Receiver};
use crate::ways::Links;

/// How often pages are told of speeds.
const SPEEDS_EVERY: Duration = Duration::from_millis(500);
/// How often it is told at most that points are lost.
const LOST_EVERY: Duration = Duration::from_secs(60);
/// Longest pause, so that it ends soon when told to.
const PAUSE: Duration = Duration::from_millis(50);

/// Whose points come.
pub enum Traffic {
    /// Those of a file, once.
    Points(Vec<Trace>),
    /// Those of vehicles that drive about on the map, so many in half an hour, for as long as the page is
    /// served.
    Simulated {
        /// The map.
        network: Network,
        /// How many.
        vehicles: usize,
    },
}

/// A thread that plays points. It ends when this is dropped.
pub struct Feed {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Plays points, so many times as fast as they came.
    pub fn start(app: App, traffic: Traffic, times: f64) -> Result<Feed, String> {
        let (links, _) = Links::open(app.client.session().map_err(text)?)?;
        let stop = Arc::new(AtomicBool::new(false));
        let player = Player { app, links, stop: stop.clone(), times, number: 0, lost: (0, None) };
        let plays = move || {
            if let Err(error) = player.play(traffic) {
                kelix_apps::complain(&format!("kelix-map: no more points come: {error}"));
            }
        };
        let thread = std::thread::Builder::new().name("map-feed".into()).spawn(plays).map_err(text)?;
        Ok(Feed { stop, thread: Some(thread) })
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What plays.
struct Player {
    app: App,
    links: Links,
    stop: Arc<AtomicBool>,
    times: f64,
    /// Points so far.
    number: u32,
    /// Points that were lost since it was told last, and when that was.
    lost: (u64, Option<Instant>),
}

impl Player {
    fn play(mut self, traffic: Traffic) -> Result<(), String> {
        match traffic {
            Traffic::Points(traces) => self.play_traces(&traces),
            Traffic::Simulated { network, vehicles } => {
                let noise = Receiver::default().noise;
                let mut simulation = Simulation::new(&network, noise, 1);
                while !self.is_stopped() {
                    let drives = simulation.drives(vehicles)?;
                    let traces: Vec<Trace> = drives.into_iter().map(|drive| drive.trace).collect();
                    self.play_traces(&traces)?;
                    simulation.go_on();
                }
                Ok(())
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn play_traces(&mut self, traces: &[Trace]) -> Result<(), String> {
        let points = stream(traces);
        let Some((_, first)) = points.first() else { return Ok(()) };
        let matcher = Matcher::new(self.app.about.grid);
        let mut matching = Stream::new(matcher, Receiver::default(), traces.len());
        let (began, mut told) = (Instant::now(), Instant::now());
        for (vehicle, fix) in &points {
            let after = Duration::from_secs_f64((fix.at_ms - first.at_ms) as f64 / 1e3 / self.times);
            while began.elapsed() < after && !self.is_stopped() {
                std::thread::sleep((after - began.elapsed().min(after)).min(PAUSE));
            }
            if self.is_stopped() {
                return Ok(());
            }
            let mut taken = self.point(&mut matching, (*vehicle, &traces[*vehicle].vehicle, *fix));
            if taken.is_ok() && told.elapsed() > SPEEDS_EVERY {
                told = Instant::now();
                taken = self.speeds(minute_of(fix.at_ms));
            }
            if let Err(error) = taken {
                self.lose(&error);
            }
        }
        Ok(())
    }

    fn point(&mut self, matching: &mut Stream, point: (usize, &str, Fix)) -> Result<(), String> {
        let (seen, _) = follow(&mut self.links, &self.app.live, matching, self.number, point)?;
        self.number = self.number.wrapping_add(1);
        self.tell(json!({"point": seen}));
        Ok(())
    }

    /// Goes on without a point that the store did not take: it may be busy, or another one by now.
    fn lose(&mut self, error: &str) {
        let (count, told) = &mut self.lost;
        *count += 1;
        if told.is_none_or(|told| told.elapsed() > LOST_EVERY) {
            let points = if *count == 1 { "a point is".into() } else { format!("{count} points are") };
            kelix_apps::complain(&format!("kelix-map: {points} lost, and the others come: {error}"));
            self.lost = (0, Some(Instant::now()));
        }
        let session = self.app.client.session().map_err(Failure::from);
        if let Ok((links, _)) = session.and_then(Links::open) {
            self.links = links;
        }
    }

    fn speeds(&mut self, minute: u32) -> Result<(), String> {
        let minutes = (minute + 1).saturating_sub(MINUTES)..=minute;
        let speeds = self.app.live.speeds(&mut self.links.session, &minutes)?;
        self.tell(json!({"minute": minute, "speeds": speeds}));
        Ok(())
    }

    /// Tells all pages that are open, if there are some.
    fn tell(&self, news: serde_json::Value) {
        let _ = self.app.news.send(news.to_string());
    }
}
