//! The terminal: prepared when `top` begins, and restored however it ends.

use std::io::{self, BufWriter, Stdout, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::draw::draw;
use super::keys::TopKey;
use super::state::TopState;

/// How long a stop by Ctrl-Z may take to begin.
const MAX_STOP: Duration = Duration::from_secs(1);

/// Whether the terminal is prepared, and must be restored.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// Restores the terminal, if it is prepared. Safe to call at any time, from any thread.
pub fn restore() {
    if IS_PREPARED.swap(false, Ordering::SeqCst) {
        // The terminal may be gone; then nothing is left to restore.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Switches the terminal to raw mode and to the alternate screen.
fn prepare() -> io::Result<()> {
    IS_PREPARED.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))
}

/// An empty drawing surface on standard output. The terminal must be prepared.
fn page() -> io::Result<Terminal<CrosstermBackend<BufWriter<Stdout>>>> {
    Terminal::new(CrosstermBackend::new(BufWriter::new(stdout())))
}

/// What came from the terminal.
pub(super) enum Input {
    Key(TopKey),
    /// The page must be drawn again.
    Resized,
}

/// A prepared terminal. Dropping it restores the terminal; so does a panic, in any thread.
pub(super) struct LiveTerminal(Terminal<CrosstermBackend<BufWriter<Stdout>>>);

impl LiveTerminal {
    pub(super) fn prepare() -> io::Result<LiveTerminal> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            // The message of a panic belongs on the user's own screen. The process ends behind this hook.
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        prepare().and_then(|()| page()).map(LiveTerminal).inspect_err(|_| restore())
    }

    pub(super) fn draw(&mut self, state: &mut TopState) -> io::Result<()> {
        self.0.draw(|canvas| draw(canvas, state)).map(|_| ())
    }

    /// The terminal's next event. `None` after `time`, or for an event that `top` ignores.
    pub(super) fn input(time: Duration) -> io::Result<Option<Input>> {
        if !event::poll(time)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(pressed) if pressed.kind != KeyEventKind::Release => key(pressed).map(Input::Key),
            Event::Resize(_, _) => Some(Input::Resized),
            _ => None,
        })
    }

    /// Stops this process as Ctrl-Z stops others, with the terminal restored meanwhile.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut continued = {
            let _inside = runtime.enter();
            signal(SignalKind::from_raw(libc::SIGCONT))?
        };
        restore();
        // Only this process: a symbol worker or helper that stops would be taken for one that hangs.
        kill_process(getpid(), Signal::TSTP)?;
        // `kill_process` returns before the signal stops this thread. A process without a shell that controls jobs is not
        // stopped and gets no SIGCONT, so the wait has a limit.
        _ = runtime.block_on(async { timeout(MAX_STOP, continued.recv()).await });
        prepare()?;
        self.0 = page()?;
        Ok(())
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn key(pressed: KeyEvent) -> Option<TopKey> {
    let is_control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c') if is_control => TopKey::Interrupt,
        KeyCode::Char('z') if is_control => TopKey::Suspend,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(c) => TopKey::Char(c),
        KeyCode::Enter => TopKey::Enter,
        KeyCode::Esc => TopKey::Escape,
        KeyCode::Backspace => TopKey::Backspace,
        KeyCode::Tab => TopKey::Tab,
        KeyCode::Up => TopKey::Up,
        KeyCode::Down => TopKey::Down,
        KeyCode::Left => TopKey::Left,
        KeyCode::Right => TopKey::Right,
        KeyCode::PageUp => TopKey::PageUp,
        KeyCode::PageDown => TopKey::PageDown,
        KeyCode::Home => TopKey::Home,
        KeyCode::End => TopKey::End,
        _ => return None,
    })
}
