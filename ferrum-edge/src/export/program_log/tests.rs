//! The program log with readers that are slow, gone or broken.

use std::sync::mpsc;

use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// Far beyond what a busy machine takes.
const LONG: Duration = Duration::from_secs(60);

/// An output that hands over what is written, and waits until it is taken.
struct Slow(mpsc::SyncSender<Vec<u8>>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(log: &ProgramLog, work: impl FnOnce()) {
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish().with(log.repeats());
    tracing::subscriber::with_default(subscriber, work);
}

#[test]
fn a_reader_that_reads_nothing_holds_nobody_up_and_lines_are_lost() {
    let log = ProgramLog::default();
    let (sender, reader) = mpsc::sync_channel(0);
    log.start(Slow(sender)).unwrap();
    let line = format!("{}\n", "x".repeat(99));
    let all = 2 * MAX_WAITING_BYTES / line.len();
    (0..all).for_each(|_| log.push(line.as_bytes()));
    log.flush(Duration::from_millis(1));
    let lost = log.counts().lost;
    assert!(lost > 0);
    assert!(log.queue().lines.len() <= MAX_WAITING_BYTES);
    let mut read = 0;
    while (read as u64) + lost < all as u64 {
        read += reader.recv_timeout(LONG).unwrap().len() / line.len();
    }
    log.flush(LONG);
    assert_eq!(log.counts(), Counts { written: read as u64, lost, ..Counts::default() });
}

#[test]
fn a_reader_that_is_gone_is_counted() {
    let log = ProgramLog::default();
    let (sender, reader) = mpsc::sync_channel(0);
    drop(reader);
    log.start(Slow(sender)).unwrap();
    logged(&log, || tracing::error!("one"));
    log.flush(LONG);
    logged(&log, || tracing::error!("two"));
    log.flush(LONG);
    assert_eq!(log.counts(), Counts { lost: 2, write_errors: 2, ..Counts::default() });
}

#[test]
fn lines_of_one_place_that_come_too_fast_are_left_out_and_counted() {
    let log = ProgramLog::default();
    let (sender, reader) = mpsc::sync_channel(0);
    log.start(Slow(sender)).unwrap();
    let reading = std::thread::spawn(move || reader.iter().map(|bytes| lines(&bytes)).sum::<u64>());
    logged(&log, || {
        (0..10_000).for_each(|_| tracing::warn!("often"));
        tracing::warn!("another place");
    });
    log.flush(LONG);
    let Counts { written, left_out, .. } = log.counts();
    assert_eq!(written + left_out, 10_001);
    assert!((101..5_000).contains(&written), "{written}");
    let [(metadata, lines)] = log.0.repeats.take()[..] else { panic!("one place") };
    assert_eq!((metadata.level(), lines), (&tracing::Level::WARN, left_out));
    drop(reading);
}

#[test]
fn a_place_gets_its_lines_back_with_time() {
    let repeats = Repeats::default();
    let log = ProgramLog::default();
    logged(&log, || tracing::warn!("to have a place"));
    let metadata = log.0.repeats.place().unwrap();
    let start = Instant::now();
    let passed = |at| (0..1000).filter(|_| repeats.lets_through(metadata, at)).count();
    assert_eq!(passed(start), 100);
    assert_eq!(passed(start + Duration::from_secs(5)), 5);
    assert_eq!(passed(start + Duration::from_secs(3600)), 100);
}

#[test]
fn urls_in_lines_show_no_credentials() {
    let log = ProgramLog::default();
    logged(&log, || {
        tracing::warn!(error = "https://u:hush@a.test/list?token=hush answers 500", "a task failed")
    });
    let queue = log.queue();
    let text = String::from_utf8_lossy(&queue.lines);
    assert!(text.contains("https://REDACTED@a.test/list?token=REDACTED answers 500"), "{text}");
}
