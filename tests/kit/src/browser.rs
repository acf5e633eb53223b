//! Debian's Chromium without a window, driven by its DevTools protocol: JSON objects with a NUL behind each, over the
//! pipes that `--remote-debugging-pipe` expects as descriptors 3 and 4.
//!
//! Chromium takes more than a second of CPU time to start, and a page takes a few milliseconds. So a test that ends
//! well leaves its Chromium to the next test, which opens a page of its own there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The timeout for an answer, so that a test cannot hang.
const TIMEOUT: Duration = Duration::from_secs(300);
/// A Chromium is ended after this many seconds, if nothing else ends it: longer than all tests take.
const MAX_LIFE_S: &str = "14400";

/// Running Chromiums that no test uses. They end with the process of the tests, which closes their pipes.
static IDLE: Mutex<Vec<Chromium>> = Mutex::new(Vec::new());

/// A running Chromium. Dropping it ends it.
struct Chromium {
    child: Child,
    to: Option<ChildStdin>,
    messages: Receiver<Value>,
    requests: u64,
}

/// A page in a Chromium.
pub struct Browser {
    /// `None` only after the page was closed.
    chromium: Option<Chromium>,
    target: String,
    session: String,
    /// What the page wrote to the console, threw, or was refused by its policy.
    pub complaints: Vec<String>,
    /// The server that pages may ask.
    server: String,
}

/// Whether this machine lacks Chromium; if so, prints that.
pub fn is_missing() -> bool {
    crate::lacks("chromium")
}

impl Chromium {
    /// A Chromium that another test has left, or a new one with its files below `home`.
    fn get(home: &Path) -> Chromium {
        loop {
            let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut chromium) = idle else { return Chromium::start(home) };
            if chromium.is_alive() {
                return chromium;
            }
        }
    }

    fn start(home: &Path) -> Chromium {
        // Chromium writes settings and caches into its home only.
        let script = "exec 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null; exec timeout --kill-after=5 \"$0\" chromium \
                      --headless --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run \
                      --disable-background-networking --user-data-dir=\"$1\"";
        let mut child = Command::new("sh")
            .args(["-c", script, MAX_LIFE_S])
            .arg(home.join("chromium"))
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, mut from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let (send, messages) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Without the NUL the message is not whole: the browser has ended.
            while from.read_until(0, &mut bytes).is_ok() && bytes.pop() == Some(0) {
                if send.send(serde_json::from_slice(&bytes).unwrap()).is_err() {
                    break;
                }
                bytes.clear();
            }
        });
        let mut chromium = Chromium { child, to, messages, requests: 0 };
        // A Chromium may end when its last page is closed.
        chromium.ask("", "Target.createTarget", &json!({"url": "about:blank"}), |_| ());
        chromium
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a command to a session, or to the browser itself, and returns the result. `note` gets the events until
    /// then.
    fn ask(&mut self, session: &str, method: &str, params: &Value, mut note: impl FnMut(&Value)) -> Value {
        self.requests += 1;
        let id = self.requests;
        let mut request = json!({"id": id, "method": method, "params": params});
        if !session.is_empty() {
            request["sessionId"] = session.into();
        }
        let mut bytes = serde_json::to_vec(&request).unwrap();
        bytes.push(0);
        self.to.as_mut().unwrap().write_all(&bytes).unwrap();
        let end = Instant::now() + TIMEOUT;
        loop {
            let message = match self.messages.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("no answer within {TIMEOUT:?}: {method} {params}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser has ended: {method} {params}"),
            };
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            note(&message);
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Chromium ends when its pipe is closed. `timeout` passes the signal on, and kills a Chromium that hangs.
        self.to = None;
        if self.is_alive() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Whether a page should not have caused this event.
fn is_complaint(event: &Value, server: &str) -> bool {
    let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
    let is_known = url.starts_with("file:") || (!server.is_empty() && url.starts_with(server));
    let is_request = event["method"] == "Network.requestWillBeSent" && !is_known;
    let bad = [
        "Runtime.exceptionThrown",
        "Runtime.consoleAPICalled",
        "Log.entryAdded",
        "Page.javascriptDialogOpening",
    ];
    is_request || bad.iter().any(|method| event["method"] == *method)
}

impl Browser {
    /// Opens an empty page of this size, in a Chromium that no other test uses now. A new Chromium has its files below
    /// `home`.
    pub fn start(home: &Path, width: u32, height: u32) -> Browser {
        let mut browser = Browser {
            chromium: Some(Chromium::get(home)),
            target: String::new(),
            session: String::new(),
            complaints: Vec::new(),
            server: String::new(),
        };
        let target = browser.ask("Target.createTarget", &json!({"url": "about:blank"}));
        target["targetId"].as_str().unwrap().clone_into(&mut browser.target);
        let attached =
            browser.ask("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}));
        attached["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        // A page in the background draws nothing, and its timers are slow.
        let first = ["Page.enable", "Page.bringToFront", "Runtime.enable", "Log.enable", "Network.enable"];
        for method in first {
            browser.ask(method, &json!({}));
        }
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.ask("Emulation.setDeviceMetricsOverride", &size);
        browser
    }

    /// Sends a command and returns its result.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let Browser { chromium, session, complaints, server, .. } = self;
        let (session, server) = (session.as_str(), server.as_str());
        let chromium = chromium.as_mut().expect("the page is open");
        chromium.ask(session, method, params, |event| {
            // Events of pages that other tests have closed may come late.
            if event["sessionId"] == session && is_complaint(event, server) {
                complaints.push(event.to_string());
            }
        })
    }

    /// Opens a file, with a fragment of its address, and waits until `ready` is true there.
    pub fn open(&mut self, file: &Path, fragment: &str, ready: &str) {
        // A new fragment alone would not load the page again.
        self.ask("Page.navigate", &json!({"url": "about:blank"}));
        self.ask("Page.navigate", &json!({"url": format!("file://{}#{fragment}", file.display())}));
        self.wait_for(ready);
    }

    /// Opens the page of a server, which it may ask for more, and waits until `ready` is true there.
    pub fn open_served(&mut self, url: &str, ready: &str) {
        url.clone_into(&mut self.server);
        self.ask("Page.navigate", &json!({"url": url}));
        self.wait_for(ready);
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        let wait = format!(
            "new Promise((done) => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        assert_eq!(self.value(&wait), true, "{expression}");
    }

    /// The value of an expression, as JSON.
    pub fn value(&mut self, expression: &str) -> Value {
        let how = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.ask("Runtime.evaluate", &how);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// The text of an element.
    pub fn text(&mut self, selector: &str) -> String {
        let text = self.value(&format!("document.querySelector({}).textContent", json!(selector)));
        text.as_str().unwrap().to_owned()
    }

    /// Presses and releases a key, such as `a` or `ArrowLeft`.
    pub fn key(&mut self, key: &str, with_shift: bool) {
        let mut event = json!({"type": "keyDown", "key": key, "modifiers": if with_shift { 8 } else { 0 }});
        if key.chars().count() == 1 {
            event["text"] = key.into();
        } else if key == "Enter" {
            event["text"] = "\r".into();
        }
        self.ask("Input.dispatchKeyEvent", &event);
        event["type"] = "keyUp".into();
        event.as_object_mut().unwrap().remove("text");
        self.ask("Input.dispatchKeyEvent", &event);
    }

    /// Types a text into the focused element.
    pub fn type_text(&mut self, text: &str) {
        self.ask("Input.insertText", &json!({"text": text}));
    }

    /// Presses the mouse at one place, moves it to another one, and releases it there.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        for (kind, (x, y)) in [("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
            let event =
                json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", &event);
        }
    }

    /// Sets whether the system prefers dark colours.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.ask("Emulation.setEmulatedMedia", &features);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A Chromium in which a test failed may be in any state: it ends with this value.
        if std::thread::panicking() {
            return;
        }
        self.session.clear();
        let target = json!({"targetId": self.target});
        self.ask("Target.closeTarget", &target);
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).extend(self.chromium.take());
    }
}
