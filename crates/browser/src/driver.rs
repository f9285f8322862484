//! Chromium's driver as a process, and the processes of its browser.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

use crate::{LEAVE, PAUSE};

/// What to do where something is missing.
pub(crate) const HINT: &str = "on Debian: apt-get install chromium chromium-driver";

/// The driver, which ends with this value, and whatever is left of its browser with it.
pub(crate) struct Driver {
    child: Child,
    port: u16,
    profile: TempDir,
}

impl Driver {
    pub fn start() -> Result<Driver, String> {
        let profile = tempfile::Builder::new().prefix("kelix-browser-").tempdir();
        let profile = profile.map_err(|error| format!("no directory for a profile: {error}"))?;
        let mut command = Command::new("chromedriver");
        let child = command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = child.spawn().map_err(|error| format!("cannot start chromedriver: {error}; {HINT}"))?;
        let mut driver = Driver { child, port: 0, profile };
        driver.port = driver.said_port().ok_or_else(|| format!("chromedriver does not serve; {HINT}"))?;
        Ok(driver)
    }

    /// The port that it has chosen.
    fn said_port(&mut self) -> Option<u16> {
        let mut lines = BufReader::new(self.child.stdout.as_mut()?).lines().map_while(Result::ok);
        lines.find_map(|line| {
            line.split("started successfully on port ").nth(1)?.trim_end_matches('.').parse().ok()
        })
    }

    /// Where it is to be told what to do.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The directory of its browser's profile.
    pub fn profile(&self) -> String {
        self.profile.path().display().to_string()
    }

    /// How its browser is to be started.
    pub fn arguments(&self, width: u32, height: u32) -> Vec<String> {
        let mut arguments = vec![
            "--headless=new".into(),
            "--disable-gpu".into(),
            "--disable-dev-shm-usage".into(),
            "--disable-background-networking".into(),
            "--hide-scrollbars".into(),
            format!("--window-size={width},{height}"),
            format!("--user-data-dir={}", self.profile()),
        ];
        if getuid().is_root() {
            // As root it runs only without its sandbox. The pages are our own.
            arguments.push("--no-sandbox".into());
        }
        arguments
    }
}

/// The processes that have a profile open. They name it in their arguments, and nobody else has that
/// directory.
pub(crate) fn processes(profile: &str) -> Vec<Pid> {
    let argument = format!("--user-data-dir={profile}");
    let has_it = |pid: &i32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // Chromium rewrites them with blanks between.
        arguments.split(|byte| *byte == 0 || *byte == b' ').any(|has| has == argument.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_it).filter_map(Pid::from_raw).collect()
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let (profile, began) = (self.profile(), Instant::now());
        // Its children go a moment after it.
        loop {
            let left = processes(&profile);
            if left.is_empty() || began.elapsed() > LEAVE {
                break;
            }
            for pid in left {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(PAUSE);
        }
    }
}
