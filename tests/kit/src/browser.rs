//! Debian's Chromium without a window, driven by its DevTools protocol: JSON objects with a NUL behind each, over the
//! pipes that `--remote-debugging-pipe` expects as descriptors 3 and 4.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// Chromium is ended after this many seconds, so that a test cannot hang.
const TIMEOUT_S: &str = "240";

pub struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    session: String,
    requests: u64,
    /// What the page wrote to the console, threw, or was refused by its policy.
    pub complaints: Vec<String>,
    /// The server that pages may ask.
    server: String,
}

/// Whether this machine lacks Chromium; if so, prints that.
pub fn is_missing() -> bool {
    crate::lacks("chromium")
}

impl Browser {
    /// Starts a browser with an empty page of this size.
    pub fn start(home: &Path, width: u32, height: u32) -> Browser {
        // Chromium writes settings and caches into its home only.
        let script = "exec 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null; exec timeout --kill-after=5 \"$0\" chromium \
                      --headless --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run \
                      --disable-background-networking --user-data-dir=\"$1\"";
        let mut child = Command::new("sh")
            .args(["-c", script, TIMEOUT_S])
            .arg(home.join("chromium"))
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser {
            child,
            to,
            from,
            session: String::new(),
            requests: 0,
            complaints: Vec::new(),
            server: String::new(),
        };
        let target = browser.ask("Target.createTarget", &json!({"url": "about:blank"}));
        let attached =
            browser.ask("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}));
        attached["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            browser.ask(domain, &json!({}));
        }
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.ask("Emulation.setDeviceMetricsOverride", &size);
        browser
    }

    /// Sends a command and returns its result.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        let mut request = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = serde_json::to_vec(&request).unwrap();
        bytes.push(0);
        self.to.as_mut().unwrap().write_all(&bytes).unwrap();
        loop {
            let message = self.receive().unwrap_or_else(|| panic!("{method}: the browser has ended"));
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn receive(&mut self) -> Option<Value> {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        bytes.pop()?;
        Some(serde_json::from_slice(&bytes).unwrap())
    }

    fn note(&mut self, event: &Value) {
        let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
        let is_known = url.starts_with("file:") || (!self.server.is_empty() && url.starts_with(&self.server));
        let is_request = event["method"] == "Network.requestWillBeSent" && !is_known;
        let bad = [
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        ];
        if is_request || bad.iter().any(|method| event["method"] == *method) {
            self.complaints.push(event.to_string());
        }
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
        self.session.clear();
        if !std::thread::panicking() {
            self.ask("Browser.close", &json!({}));
        }
        // Chromium ends when its pipe is closed.
        self.to = None;
        let _ = self.child.wait();
    }
}
