//! What templates of plugins may know of an exchange.

use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::Seat;
use gateway_core::template::Facts;
use http::{HeaderMap, StatusCode};

/// What a template may know of a request.
pub fn of<'a>(exchange: &'a Exchange, seat: Seat<'a>) -> Facts<'a> {
    let proxy = Some(seat.proxy().id.as_str());
    Facts { proxy, target: seat.target(), ..Facts::of(exchange) }
}

/// What a template may know once there is a response.
pub fn with_response<'a>(
    exchange: &'a Exchange,
    seat: Seat<'a>,
    status: StatusCode,
    headers: &'a HeaderMap,
) -> Facts<'a> {
    Facts { response: Some((status, headers)), ..of(exchange, seat) }
}
