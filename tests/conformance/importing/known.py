"""Differences that are meant to be, as the notes of imports' reports state. Each has a test and a reason."""

import dataclasses
import re
import urllib.parse


def hostile(path):
    """Whether a path is of those that the gateway answers 400."""
    return not path.isascii() or bool(re.search(r"%2f|%5c|\\|%25|%00", path, re.I))


def plain(text):
    """A path, URL or line with one slash for many, and without dot segments."""
    start, mark, query = text.partition("?")
    start = re.sub(r"(?<!:)/{2,}", "/", start)
    while (shorter := re.sub(r"/\.(?=/|$)|/(?!\.\./)[^/ ]+/\.\.(?=/|$)", "", start)) != start:
        start = shorter
    return start + mark + query


def resolved(text):
    """A path, URL or line as the gateway writes its path: as `plain`, and no letters encoded."""
    start, _, query = plain(text).partition("?")
    return urllib.parse.unquote(start) + (f"?{query}" if query else "")


def same(one, other, change):
    """Whether two answers are alike once their Location and what reached the target are changed."""
    if (one.status, one.target, one.fields, one.text) != (other.status, other.target, other.fields, other.text):
        return False
    return (change(one.location) == change(other.location)
            and sorted(map(change, one.seen)) == sorted(map(change, other.seen)))


def own(answer):
    """Whether a gateway answered by itself."""
    return not answer.target


def path_refused(found, _):
    return hostile(found.request[2]) and found.ours.status == 400


def path_resolved(found, _):
    return found.kind in ("seen", "location") and same(found.theirs, found.ours, resolved)


def path_resolved_before_rules(found, _):
    """Whether the original answers the path without its dot segments as the gateway answers it with them."""
    return found.resolved is not None and (found.resolved_kind == "" or found.resolved_kind in ("seen", "location")
                                           and same(found.resolved, found.ours, resolved))


def own_before_login(found, _):
    return found.theirs.status == 401 and own(found.ours) and found.ours.status < 400


def to_itself(found, _):
    return found.theirs.status in (301, 302, 303, 307, 308) and found.ours.status == 508


def options_of_files(found, _):
    return found.request[0] == "OPTIONS" and own(found.ours) and found.ours.status == 204


def nginx_decodes(found, _):
    return same(found.theirs, found.ours, urllib.parse.unquote)


def nginx_large_body(found, _):
    return found.theirs.status == 413 and own(found.ours) and found.ours.status not in (200, 503)


def nginx_folder(found, _):
    path = plain(found.request[2].partition("?")[0])
    return found.theirs.status == 301 and found.theirs.location.split("?")[0] == path + "/" and (
        own(found.ours) and found.ours.status in (404, 405))


def nginx_host(found, text):
    def bare(line):
        return re.sub(r"^(host: [^:]*?)\.?(:\d+)?$", r"\1", line.lower()) if line.startswith("host: ") else line
    return "Host $host;" in text and found.kind == "seen" and same(found.theirs, found.ours, bare)


def nginx_host_alone(found, _):
    def whole(text):
        return re.sub(r"^(https?://[^/?]+)(?=$|\?)", r"\1/", re.sub(r"\?$", "", text))
    return found.kind == "location" and same(found.theirs, found.ours, whole)


def haproxy_host_alone(found, text):
    return "host_only" in text and found.request[1].endswith(".") or "field(1,:)" in text and (
        found.request[1] != found.request[1].lower())


def haproxy_lines(found, text):
    return "fhdr(" in text and ", " in found.request[3]


def haproxy_scheme(found, text):
    def short(location):
        return resolved(re.sub(r"^https?://([^/:]+)(:\d+)?", lambda url: f"https://{url[1].lower()}", location))
    return found.kind == "location" and same(found.theirs, found.ours, short) and (
        "redirect scheme" in text or "%[hdr(host)]" in text)


def haproxy_own_answers(found, text):
    one, other = found.theirs, found.ours
    return found.kind == "fields" and "http-response" in text and own(one) and own(other)


def caddy_replaces(found, text):
    one, other = found.theirs, found.ours
    names = [line.split(":")[0] for line in set(one.fields) ^ set(other.fields)]
    return found.kind == "fields" and set(other.fields) < set(one.fields) and all(
        re.search(rf"header [^\n]*{name}", text, re.I) for name in names)


def caddy_placeholders(found, _):
    def plain(text):
        return urllib.parse.unquote(text).lower()
    lower = {line.lower() for line in found.theirs.fields} == {line.lower() for line in found.ours.fields}
    if found.kind == "fields":
        return lower
    return found.kind in ("location", "seen") and same(found.theirs, found.ours, plain)


def caddy_nothing_left(found, text):
    def slash(line):
        return re.sub(r"^(\w+) \.$", r"\1 /", line)
    return "uri replace" in text and same(found.theirs, found.ours, slash)


def caddy_half_segment(found, text):
    path = resolved(found.request[2].partition("?")[0]).lower()
    stripped = [one.strip("/").lower() for pair in re.findall(r"strip_prefix (/\S+)|handle_path (/[^*\s]*)", text) for one in pair if one]
    return found.ours.status == 400 and any(re.search(f"/{re.escape(one)}[^/]", path) for one in stripped)


def caddy_says_nothing(found, _):
    one = found.theirs
    nothing = one.status == 200 and own(one) and not one.text
    return nothing and own(found.ours) and (found.ours.status == 404 or found.kind == "fields")


def caddy_files(found, text):
    one, other = found.theirs, found.ours
    if "file_server" not in text or not own(one) or not own(other) or one.status != 200:
        return False
    methods = other.status == 405 and found.request[0] not in ("GET", "HEAD")
    return methods or other.text == f"application/octet-stream{one.text[len(one.text.split(' ')[0]):]}"


def caddy_cookie(found, _):
    def empty(line):
        return resolved(re.sub(r"\{http\.request\.cookie\.\w+\}", "", line))
    return found.kind in ("seen", "location") and same(found.theirs, found.ours, empty)


EVERYWHERE = [
    (path_refused, "paths with %2F, backslashes or double encoding are answered 400"),
    (path_resolved, "dot segments are resolved, slashes in a row are one, letters are decoded, for targets as well"),
    (own_before_login, "redirects and fixed answers go before the question who it is"),
    (to_itself, "a redirect to the URL that was asked for is answered 508"),
]
OF = {
    "nginx": [
        (nginx_decodes, "`$uri` and groups have the path as it was sent; nginx decodes it"),
        (nginx_large_body, "redirects and answers of `return` take bodies of any size"),
        (nginx_host_alone, "a redirect to a host alone has no slash behind it; nginx keeps the `?` of no query"),
        (options_of_files, "files answer OPTIONS with what they allow"),
        (nginx_folder, "a folder without a file of `index` is answered 404, without a redirect"),
        (nginx_host, "`proxy_set_header Host $host` sends the client's Host as it came"),
        (path_resolved_before_rules, "`$request_uri` has no dot segments, and one slash for several in a row"),
    ],
    "haproxy": [
        (path_resolved_before_rules, "rules see a path whose slashes and dot segments are resolved"),
        (haproxy_host_alone, "hosts whose port is cut off are compared without a trailing dot, whatever their case"),
        (haproxy_lines, "`req.fhdr` finds what is between commas of one field, too"),
        (haproxy_scheme, "redirects write the host in lower case, and `redirect scheme` leaves the port out"),
        (haproxy_own_answers, "rules for responses hold for the gateway's own answers, too"),
    ],
    "caddy": [
        (path_resolved_before_rules, "rules see a path whose slashes and dot segments are resolved"),
        (caddy_replaces, "`header` replaces a field that the target sends; Caddy sends both"),
        (caddy_placeholders, "`{host}` is in lower case, and `{path}` as it was sent"),
        (caddy_says_nothing, "hosts and paths without a site are answered 404; Caddy answers 200 with nothing"),
        (options_of_files, "files answer OPTIONS with what they allow"),
        (caddy_files, "files are answered to GET and HEAD only, with a media type in any case"),
        (caddy_cookie, "`{cookie.NAME}` is empty where there is no such cookie"),
        (caddy_nothing_left, "where `uri replace` gets an empty path, targets get `/`"),
        (caddy_half_segment, "a path whose prefix is stripped within a segment is answered 400"),
    ],
}


def reason(original, found, text):
    """Why a difference is meant to be, or nothing; also of what remains once the path has no dot segments for both."""
    tries = [found]
    if found.resolved is not None and found.resolved_kind != "OPEN":
        tries.append(dataclasses.replace(found, kind=found.resolved_kind, theirs=found.resolved))
    return next((why for test, why in EVERYWHERE + OF[original] if any(test(one, text) for one in tries)), None)
