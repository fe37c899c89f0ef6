//! The screen, drawn without a terminal.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

fn line(name: &str, requests: f64, errors: f64) -> TableLine {
    TableLine {
        name: name.to_owned(),
        requests_per_second: requests,
        errors_per_second: errors,
        p50: Some(0.004),
        p99: Some(1.25),
        ..TableLine::default()
    }
}

fn screen() -> Screen {
    let mut screen = Screen::new("127.0.0.1:9000".to_owned());
    screen.board = Board {
        version: "1.2.3".to_owned(),
        revision: 7,
        proxies: vec![line("shop", 20.0, 0.0), line("cart", 5.0, 2.0), line("blog", 100.0, 0.0)],
        targets: vec![TableLine { healthy: Some(false), ..line("10.0.0.1:80", 0.0, 0.0) }],
        ..Board::default()
    };
    screen
}

fn drawn(screen: &mut Screen) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(110, 24)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let rows = buffer.content.chunks(usize::from(buffer.area.width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

fn press(screen: &mut Screen, keys: &str) {
    for letter in keys.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            letter => KeyCode::Char(letter),
        };
        assert_eq!(screen.key(KeyEvent::from(code)), KeyAction::Nothing, "{letter:?}");
    }
}

fn names(screen: &Screen) -> Vec<&str> {
    screen.lines().into_iter().map(|line| line.name.as_str()).collect()
}

#[test]
fn the_busiest_stand_first_and_events_below() {
    let mut screen = screen();
    screen.event("502 GET /a".to_owned());
    screen.event("503 GET /b".to_owned());
    let rows = drawn(&mut screen);
    assert!(
        rows[0].contains("ferrum-edge 1.2.3 at 127.0.0.1:9000") && rows[0].contains("revision 7"),
        "{rows:#?}"
    );
    assert!(rows[2].starts_with("PROXY") && rows[2].contains("REQ/Sv"), "{rows:#?}");
    let shown: Vec<_> = rows[3..6].iter().map(|row| row.split_whitespace().next().unwrap()).collect();
    assert_eq!(shown, ["blog", "shop", "cart"]);
    assert!(rows[5].contains("4.00ms") && rows[5].contains("1.25s"), "{rows:#?}");
    let events = rows.iter().position(|row| row.starts_with("Errors and slow requests")).unwrap();
    assert_eq!((rows[events + 1].as_str(), rows[events + 2].as_str()), ("503 GET /b", "502 GET /a"));
    assert!(rows[23].starts_with("q quit"));
}

#[test]
fn keys_sort_filter_and_change_the_view() {
    let mut screen = screen();
    press(&mut screen, ">>");
    assert_eq!(names(&screen)[0], "cart", "by errors");
    press(&mut screen, "r");
    assert_eq!(names(&screen), ["blog", "shop", "cart"]);
    press(&mut screen, "<<<r");
    assert_eq!(names(&screen), ["blog", "cart", "shop"], "by name");
    // Letters of a filter are not keys.
    press(&mut screen, "/O");
    assert_eq!(names(&screen), ["blog", "shop"]);
    assert!(drawn(&mut screen)[23].starts_with("filter: O_"));
    press(&mut screen, "q\n");
    assert_eq!(names(&screen), [""; 0]);
    press(&mut screen, "\u{1b}");
    assert_eq!(names(&screen).len(), 3);
    press(&mut screen, "3");
    assert!(drawn(&mut screen)[3].starts_with("10.0.0.1:80"));
    press(&mut screen, "\t");
    assert_eq!(names(&screen).len(), 0, "nobody was recognised");
    press(&mut screen, "\t");
    assert_eq!(names(&screen).len(), 3);
    press(&mut screen, "p");
    screen.event("late".to_owned());
    assert!(drawn(&mut screen)[0].ends_with("PAUSED"));
    assert!(!drawn(&mut screen).contains(&"late".to_owned()));
    assert_eq!(screen.key(KeyEvent::from(KeyCode::Char('q'))), KeyAction::Quit);
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(control), KeyAction::Quit);
}

#[test]
fn trouble_is_said_and_a_small_screen_does_no_harm() {
    let mut screen = screen();
    screen.trouble = Some("no gateway answers".to_owned());
    assert_eq!(drawn(&mut screen)[1], "no gateway answers");
    for (width, height) in [(1, 1), (20, 3), (300, 100)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
    }
}
