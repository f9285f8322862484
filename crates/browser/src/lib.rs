//! A browser of one's own, for tests: Debian's Chromium, told what to do over WebDriver.
//!
//! Each has a profile in a directory that goes with it, and ends with its value, also when a test fails: it
//! is asked to end, and what is left after that is ended by process id. Whatever does not come true on a page
//! in time is a panic that says what.

#![forbid(unsafe_code)]

mod driver;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub use fantoccini;

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use driver::{Driver, HINT};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a browser that is asked to end may take, before it is ended.
const LEAVE: Duration = Duration::from_secs(10);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A browser with one page, which ends with this value.
pub struct Browser {
    runtime: Runtime,
    client: Client,
    driver: Driver,
}

impl Browser {
    /// A browser whose window has this width and height.
    pub fn start(width: u32, height: u32) -> Result<Browser, String> {
        let driver = Driver::start()?;
        let arguments = driver.arguments(width, height);
        let capabilities = json!({ "goog:chromeOptions": { "args": arguments } });
        let capabilities = capabilities.as_object().expect("an object").clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let address = format!("http://{}", driver.address());
        let connected = runtime.block_on(builder.capabilities(capabilities).connect(&address));
        let client =
            connected.map_err(|error| format!("chromedriver cannot start chromium: {error}; {HINT}"))?;
        Ok(Browser { runtime, client, driver })
    }

    /// Does anything that WebDriver can.
    pub fn run<R>(&self, work: impl AsyncFnOnce(&Client) -> R) -> R {
        self.runtime.block_on(work(&self.client))
    }

    /// Goes to a page.
    #[track_caller]
    pub fn go(&self, address: &str) {
        let went = self.runtime.block_on(self.client.goto(address));
        went.unwrap_or_else(|error| panic!("{address}: {error}"));
    }

    /// Runs a script on the page, and gives what it returns.
    #[track_caller]
    pub fn execute(&self, script: &str, arguments: &[Value]) -> Value {
        let done = self.runtime.block_on(self.client.execute(script, arguments.to_vec()));
        done.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// The value of an expression on the page.
    #[track_caller]
    pub fn value(&self, expression: &str) -> Value {
        self.execute(&format!("return {expression}"), &[])
    }

    /// Waits until an expression is true on the page.
    #[track_caller]
    pub fn wait_for(&self, expression: &str) {
        let began = Instant::now();
        while self.value(expression) != json!(true) {
            if began.elapsed() > PATIENCE {
                panic!(
                    "never came true: {expression}; on the page: {}",
                    self.value("document.body.innerText")
                );
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The text of the first element that a selector names, once there is one.
    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        let began = Instant::now();
        loop {
            let found = self.runtime.block_on(async {
                let element =
                    self.client.wait().at_most(PATIENCE).for_element(Locator::Css(selector)).await?;
                element.text().await
            });
            // It may go with the page before.
            match found {
                Ok(text) => return text,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{selector}: {error}"),
            }
        }
    }

    /// Clicks on the first element that a selector names.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let clicked =
            self.runtime.block_on(async { self.client.find(Locator::Css(selector)).await?.click().await });
        clicked.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Gives the page a width and a height, also those of a phone, which no window has.
    #[track_caller]
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Lets pages know that their reader likes them `dark`, or `light`.
    #[track_caller]
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.command("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Writes a picture of what the window shows into a file.
    #[track_caller]
    pub fn screenshot(&self, file: impl AsRef<Path>) {
        let picture = self.runtime.block_on(self.client.screenshot()).expect("a picture");
        std::fs::write(file, picture).expect("written");
    }

    /// A command of Chromium's own, for which WebDriver has none.
    #[track_caller]
    fn command(&self, command: &str, parameters: &Value) {
        let session = self.runtime.block_on(self.client.session_id()).ok().flatten().expect("a session");
        let body = json!({ "cmd": command, "params": parameters }).to_string();
        let ask = || {
            let mut stream = TcpStream::connect(self.driver.address())?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(
                stream,
                "POST /session/{session}/goog/cdp/execute HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                self.driver.address(),
                body.len()
            )?;
            // The driver leaves the connection open, so the answer ends with its first line.
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer)?;
            Ok::<String, std::io::Error>(answer)
        };
        let answer = ask().unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{command}: {answer}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let client = self.client.clone();
        // One that does not answer any more is ended with the driver.
        let _ = self.runtime.block_on(async { tokio::time::timeout(LEAVE, client.close()).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_in_the_size_and_the_colours_that_are_told() {
        let browser = Browser::start(800, 600).unwrap();
        browser.go("data:text/html,<p id=a>one</p><button onclick='a.textContent=2'>press</button>");
        assert_eq!(browser.text("#a"), "one");
        browser.click("button");
        browser.wait_for("a.textContent === '2'");
        browser.resize(390, 700);
        browser.wait_for("innerWidth === 390");
        for scheme in ["dark", "light"] {
            browser.prefer(scheme);
            browser.wait_for(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"));
        }
        assert_eq!(browser.execute("return arguments[0] + 1", &[json!(2)]), json!(3));
        assert!(browser.run(async |page| page.title().await).unwrap().is_empty());
    }

    #[test]
    fn a_test_that_fails_leaves_no_browser_behind() {
        let mut profile = String::new();
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let browser = Browser::start(400, 300).unwrap();
            profile = browser.driver.profile();
            assert!(!driver::processes(&profile).is_empty(), "it runs");
            browser.execute("no script", &[]);
        }));
        assert!(failed.is_err());
        assert_eq!(driver::processes(&profile), [], "none is left");
        assert!(!Path::new(&profile).exists());
    }

    #[test]
    fn a_browser_that_does_not_end_by_itself_is_ended() {
        let driver = Driver::start().unwrap();
        let profile = driver.profile();
        let mut left = std::process::Command::new("chromium")
            .args(driver.arguments(400, 300))
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while driver::processes(&profile).is_empty() {
            assert!(began.elapsed() < PATIENCE, "chromium does not start");
            std::thread::sleep(PAUSE);
        }
        drop(driver);
        assert!(!left.wait().unwrap().success());
        assert_eq!(driver::processes(&profile), []);
    }
}
