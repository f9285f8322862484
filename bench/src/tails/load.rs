//! Other work on the host.

use std::process::{Child, Command, Stdio};

use super::text;
use kelix_report::cores::{cores, pin_process};

/// A process on each core that computes, until this is dropped.
pub(super) struct Load(Vec<Child>);

impl Load {
    pub fn start() -> Result<Load, String> {
        // A process that nobody has killed ends by itself when this one has gone.
        let script = format!(
            "while kill -0 {}; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done",
            std::process::id()
        );
        let mut load = Load(Vec::new());
        for core in 0..cores() {
            let mut command = Command::new("sh");
            command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().map_err(text)?;
            pin_process(child.id(), core..core + 1);
            load.0.push(child);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
