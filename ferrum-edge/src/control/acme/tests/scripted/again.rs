//! What comes after something went wrong: another try, not too soon and not too late, or none that is not needed.

use super::*;

const CERTIFICATE: &str = "ca/certificates/shop.pem";
const ATTEMPTS: &str = "ca/attempts/shop.json";

impl Bench {
    /// How often a certificate was ordered.
    fn ordered(&self) -> usize {
        self.ca.state().heard.iter().filter(|(path, sent)| path == "/order" && sent.is_object()).count()
    }

    /// What is stored for the certificate, by whom ever.
    fn store(&self) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["shop.test".to_owned()]).unwrap();
        fs::create_dir_all(self.folder.path("ca/certificates")).unwrap();
        fs::write(self.folder.path(CERTIFICATE), signing_key.serialize_pem() + cert.pem().as_str()).unwrap();
    }
}

fn pause(status: &AcmeStatus) -> u64 {
    status.next_order_at.unwrap().duration_since(status.failed_at.unwrap()).unwrap().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_file_that_could_not_be_read_once_is_read_again_though_it_looks_the_same() {
    let mut bench = Bench::new();
    bench.look().await;
    let path = bench.folder.path(CERTIFICATE);
    let (good, time) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    let put = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    };
    put(&vec![b'x'; good.len()]);
    bench.restart();
    let status = bench.look().await;
    assert!(status.problem.is_some());
    assert_eq!(status.next_order_at, None);
    put(&good);
    let status = bench.look().await;
    assert_eq!((status.standing(), status.problem), (AcmeStanding::Good, None));
    assert!(status.next_order_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_huge_refusal_is_kept_cut_and_asked_after_once() {
    let mut bench = Bench::new();
    let huge = String::leak("y".repeat(2 << 20));
    bench.ca.refuse("/order", 400, huge, None);
    bench.look().await;
    bench.restart();
    assert_eq!(bench.at(60).await.failures, 1);
    assert_eq!(bench.ordered(), 1);
    assert!(fs::metadata(bench.folder.path(ATTEMPTS)).unwrap().len() < 10_000);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_can_not_be_read_any_more_are_kept_to() {
    let mut bench = Bench::new();
    bench.ca.refuse("/order", 400, "rejectedIdentifier", None);
    bench.look().await;
    fs::write(bench.folder.path(ATTEMPTS), "torn").unwrap();
    assert_eq!(bench.at(60).await.failures, 1);
    assert_eq!(bench.ordered(), 1);
    assert_eq!(bench.at(600).await.standing(), AcmeStanding::Good);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_was_cut_short_is_not_made_anew_at_each_start() {
    let mut bench = Bench::new();
    // It is under way while the CA is given time to settle.
    let cut = tokio::time::timeout(Duration::from_secs(1), bench.manager.look()).await;
    assert!(cut.is_err());
    assert_eq!(bench.ordered(), 1);
    for _ in 0..3 {
        bench.restart();
        bench.at(60).await;
    }
    assert_eq!(bench.ordered(), 1);
    assert_eq!(bench.at(400).await.standing(), AcmeStanding::Good);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_the_ca_may_have_carried_out_is_gone_on_with() {
    for lost in ["/finalize", "/certificate"] {
        let mut bench = Bench::new();
        bench.ca.state().lost.push(lost);
        let status = bench.look().await;
        assert!(status.problem.as_ref().unwrap().contains("connection reset"), "{status:?}");
        assert!(pause(&status) >= 300, "it may count against limits");
        let order = bench.folder.path("ca/orders/shop.json");
        assert_eq!(mode(&order), 0o600);
        bench.restart();
        assert_eq!(bench.at(400).await.standing(), AcmeStanding::Good);
        assert_eq!((bench.issued(), bench.ordered()), (1, 1), "{lost}");
        assert!(!order.exists());
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_certificate_is_stored_is_over_though_its_file_is_still_there() {
    let mut bench = Bench::new();
    bench.ca.state().life = Some(Duration::from_secs(3600));
    bench.ca.state().lost.push("/certificate");
    bench.look().await;
    let path = bench.folder.path("ca/orders/shop.json");
    let order = fs::read(&path).unwrap();
    assert_eq!(bench.at(400).await.standing(), AcmeStanding::Good);
    // As after a kill between the two.
    fs::write(&path, order).unwrap();
    bench.restart();
    bench.at(3500).await;
    assert_eq!((bench.issued(), bench.ordered()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_order_that_the_ca_does_not_know_any_more_is_made_anew() {
    let mut bench = Bench::new();
    bench.ca.state().lost.push("/finalize");
    bench.look().await;
    bench.ca.refuse("/order", 404, "malformed", None);
    assert_eq!(bench.at(400).await.standing(), AcmeStanding::Good);
    assert_eq!((bench.issued(), bench.ordered()), (2, 2));
    // One of long ago is not gone on with, either.
    bench.ca.state().lost.push("/finalize");
    bench.at(70 * DAY).await;
    bench.at(72 * DAY).await;
    assert_eq!((bench.issued(), bench.ordered()), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_issued_that_could_not_be_stored() {
    let mut bench = Bench::new();
    // A file can't be put in its place.
    let taken = bench.folder.path("ca/orders/shop.json.new");
    fs::create_dir_all(&taken).unwrap();
    let status = bench.look().await;
    assert!(status.problem.as_ref().unwrap().contains("can't be written"), "{status:?}");
    assert_eq!((bench.ca.count("/finalize"), bench.issued()), (0, 0));
    assert!(pause(&status) >= 300);
    fs::remove_dir(&taken).unwrap();
    assert_eq!(bench.at(400).await.standing(), AcmeStanding::Good);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_stops_orders_for_a_week_at_most() {
    let mut bench = Bench::new();
    fs::create_dir_all(bench.folder.path("ca/attempts")).unwrap();
    let most = u64::MAX;
    let text = format!(r#"{{ "failures": 1, "failed_at": {most}, "problem": "no", "not_before": {most} }}"#);
    fs::write(bench.folder.path(ATTEMPTS), text).unwrap();
    let status = bench.look().await;
    let wait = status.next_order_at.unwrap().duration_since(SystemTime::now()).unwrap().as_secs();
    assert!(wait <= 7 * DAY, "{wait}");
    bench.restart();
    bench.at(6 * DAY).await;
    assert_eq!(bench.issued(), 0);
    bench.at(7 * DAY + 60).await;
    assert_eq!(bench.issued(), 1, "a start does not make the week begin again");
}

#[tokio::test(start_paused = true)]
async fn a_long_time_without_the_ca_does_not_make_the_first_refusal_wait_long() {
    let mut bench = Bench::new();
    bench.ca.state().is_away = true;
    for hour in 1..20 {
        bench.at(hour * 3600).await;
    }
    bench.ca.state().is_away = false;
    bench.ca.refuse("/order", 400, "rejectedIdentifier", None);
    let status = bench.at(20 * 3600).await;
    assert_eq!(status.failures, 20);
    assert!((300..=361).contains(&pause(&status)), "{}", pause(&status));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_could_not_be_kept_is_over_once_another_gateway_got_one() {
    let mut bench = Bench::new();
    fs::create_dir(bench.folder.path("ca")).unwrap();
    fs::write(bench.folder.path("ca/attempts"), "a file").unwrap();
    assert_eq!(bench.look().await.standing(), AcmeStanding::Failing);
    bench.store();
    let status = bench.look().await;
    assert_eq!((status.standing(), status.failures, status.problem), (AcmeStanding::Good, 0, None));
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_gone_is_made_again_though_the_address_changed() {
    let mut bench = Bench::new();
    bench.look().await;
    bench.email = Some("ops@shop.test");
    bench.restart();
    bench.ca.refuse("/account/1", 400, "accountDoesNotExist", None);
    bench.at(80 * DAY).await;
    assert_eq!((bench.issued(), bench.ca.count("/account")), (2, 2));
    let account = Storage::new(&bench.folder.path("ca")).account().unwrap().unwrap();
    assert_eq!(account.email.as_deref(), Some("ops@shop.test"));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_the_ca_does_not_take_keeps_nobody_from_a_renewal() {
    let mut bench = Bench::new();
    bench.look().await;
    bench.email = Some("ops@shop.test");
    bench.restart();
    bench.ca.refuse("/account/1", 400, "invalidContact", None);
    let status = bench.at(80 * DAY).await;
    assert_eq!((bench.issued(), status.problem), (2, None));
    let account = Storage::new(&bench.folder.path("ca")).account().unwrap().unwrap();
    assert_eq!(account.email, None, "the CA is asked again");
}

#[tokio::test(start_paused = true)]
async fn what_is_of_somebody_else_among_challenges_stops_nothing() {
    let mut bench = Bench::new();
    let (folder, open) = (bench.folder.path("ca/challenges/abc"), bench.folder.path("ca/challenges/.nfs01"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(&open, "").unwrap();
    let status = bench.look().await;
    assert_eq!((bench.issued(), status.problem), (1, None));
    assert!(folder.exists() && open.exists());
    assert!(!bench.folder.path("ca/challenges/tok").exists());
    assert_eq!(bench.around.published.lock().unwrap().last().unwrap(), &Vec::new());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_lives_for_an_hour_is_renewed_before_it_ends() {
    let mut bench = Bench::new();
    bench.ca.state().life = Some(Duration::from_secs(3600));
    let status = bench.look().await;
    let left = status.ends_at.unwrap().duration_since(status.next_order_at.unwrap()).unwrap().as_secs();
    assert!((600..=1800).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn a_ca_that_is_away_or_refuses_the_account_is_asked_once_for_all() {
    let mut bench = Bench::of(&["shop", "cart", "blog"]);
    bench.ca.state().is_away = true;
    let all =
        |bench: &Bench| bench.around.counts.statuses().iter().map(|one| one.failures).collect::<Vec<_>>();
    bench.look().await;
    assert_eq!((bench.ca.state().asked, all(&bench)), (1, vec![1; 3]));
    bench.ca.state().is_away = false;
    bench.ca.refuse("/account", 429, "rateLimited", Some("86400"));
    bench.at(600).await;
    assert_eq!((bench.ca.count("/account"), all(&bench)), (1, vec![2; 3]));
    // The others don't wait for a day because one was told to.
    bench.at(600 + 2400).await;
    assert_eq!((bench.issued(), all(&bench)), (2, vec![2, 0, 0]));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_refused_keeps_no_other_waiting() {
    let mut bench = Bench::of(&["shop", "cart"]);
    bench.ca.refuse("/order", 400, "rejectedIdentifier", None);
    bench.look().await;
    assert_eq!((bench.ordered(), bench.issued()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn the_time_for_the_check_of_names_is_for_all_of_them() {
    let mut bench = Bench::new();
    bench.ca.state().slow = Some(Duration::from_secs(4 * 60));
    let status = bench.look().await;
    let problem = status.problem.unwrap();
    assert!(problem.contains("not checked it in time"), "{problem}");
    assert_eq!(bench.issued(), 0);
}
