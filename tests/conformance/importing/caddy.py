"""Random Caddyfiles."""

from importing import drawing
from importing.drawing import PASSWORD, WRONG, blocks, lines, some

NAME, FORMAT, FILE = "caddy", "caddyfile", "Caddyfile"
ENDS = 1  # Lines that end a block.
METHODS = "GET GET GET POST HEAD DELETE OPTIONS".split()
HOSTS = r"""a.test A.test a.test:23010 b.test x.w.test none.test""".split()
PATHS = r"""/ /api /api/ /api/x /API/x /apix /api/v1/x?q=1 /api/v1 /admin /admin/ /admin/x /Admin/x /administrator
/img/a.png /img/a.PNG /img/a%20b.png /x /x/ /x/12 /x/ab /secret /secret/x /secret//x //secret/x /secret;a=b
/old/x /old/x?y=1 /strip/a/b?c=d /strip/ /strip /strip/secret/x /strip/admin /?debug=1 /x?debug=1&debug=2
/x?DEBUG=1 /?v=2 /x?v=2&w /.git/x /a+b /img//a.png /foo.php /foo.php/bar /x.PHP?z /health /healthx
/one/two/three /static/f.txt /static/ /static /static/none /app /pub/secret/x""".split()
FIELDS = ["", PASSWORD, WRONG] + lines(r"""
    x-key: sesame
    X-Key: Sesame
    x-key: open-1
    x-key: a\r\nx-key: sesame
    user-agent: BadBot/1
    cookie: group=test; a=b
    x-gone: here
    x-role: admin
    x-forwarded-for: 10.0.0.1
    x-forwarded-proto: https
    accept: text/html
    content-type: application/json
    x-real-ip: 1.2.3.4""")
WAYS = r"""/ /api/* /api* /admin* /admin/* /secret/* /secret /x /x/* /img/*.png /strip/* /old/* * /*/x /static/* /health
/pub/* /api/v1/*""".split()
MATCHERS = lines(r"""
    path /api/* /x
    path /admin*
    path *.png *.php
    path_regexp ^/x/[0-9]+$
    path_regexp num ^/(api|img)/(.*)$
    method POST
    method GET HEAD
    header X-Key sesame
    header X-Key sesame*
    header X-Key *
    header !X-Key
    header X-Role admin
    header_regexp User-Agent (?i)bad
    header Cookie *group=test*
    query debug=1
    query debug=*
    query v=2 v=3
    remote_ip 127.0.0.1
    remote_ip 10.0.0.0/8
    host a.test
    host b.test *.w.test
    protocol http
    protocol https
    not path /api/*
    not header X-Key sesame
    not remote_ip 127.0.0.0/8
    not method GET
    not {\npath /x\nmethod POST\n}
    expression {method} == "POST"
    expression `{path}.startsWith("/api")`
    file
    file {path} {path}.html
    vars {team} blue
    not query debug=1
    path /secret/* /Admin/*
    not path /
    header Content-Type application/json
    path_regexp ^/(api|img)
    path_regexp \.(png|php)$
    path /api /api/*
    path */x *.php
    header X-Forwarded-Proto https
    header Cookie *
    header_regexp X-Key ^(open|ses)
    header_regexp k X-Key ^o
    query debug=1 debug=2
    method PUT DELETE
    not {\nmethod GET\nmethod POST\n}
    not {\npath /api/*\nheader X-Key sesame\n}
    not host b.test
    remote_ip private_ranges
    remote_ip 10.0.0.0/8 192.168.0.0/16
    not path *.png *.php
    expression {http.request.uri.path}.endsWith(".php")""")
ACTIONS = lines(r"""
    respond 403
    respond 404
    respond "fixed" 200
    respond 204
    respond 401
    respond "busy" 503
    redir https://else.test{uri}
    redir /new{uri} permanent
    redir /new 302
    redir https://else.test{path} 308
    redir /x?{query} 303
    abort
    error 403
    error "no" 404
    respond "{method} {host}" 200
    redir / html
    redir https://{host}{uri} permanent
    redir https://www.{host}{uri} 301
    redir {scheme}://else.test{path}/ 307
    respond "closed" 503 {\nclose\n}
    respond {\nbody hi\n}
    respond `{"a":1}` 200
    respond OK
    error 401""")
CHANGES = lines(r"""
    rewrite /fixed
    rewrite /v2{uri}
    rewrite /v2{path}
    rewrite {path}/ 
    rewrite /secret{uri}
    rewrite /q?a=1
    rewrite /q?{query}&a=1
    rewrite ?b=2
    uri strip_prefix /api
    uri strip_prefix /strip
    uri strip_suffix .php
    uri strip_prefix /old
    uri replace x y
    rewrite /index.php?p={path}
    rewrite {path}.html
    rewrite /a/b
    header {\nX-A 1\n-X-Secret\n+X-More 2\n}
    header -Server
    request_header {\nX-A 1\n-X-Gone\n}
    request_header Host other.test
    request_header X-Real-IP {remote_host}
    header Strict-Transport-Security "max-age=1; includeSubDomains"
    encode {\ngzip\nminimum_length 10\n}
    uri replace /old/ /new/
    uri path_regexp ^/x/([0-9]+)$ /num/$1
    method POST
    request_header X-Team blue
    request_header -X-Gone
    request_header X-Key sesame
    request_header X-Role guest
    request_header X-Path {path}
    request_header +X-More more
    request_header X-Key ^se op
    header X-Frame-Options DENY
    header -X-Secret
    header Cache-Control no-store
    header +X-More more
    header ?X-Default def
    header -X-*
    header X-Host {host}
    header X-Powered-By php perl
    vars team blue
    vars n 1
    encode gzip
    encode zstd gzip
    map {path} {team} {\n/api/* red\n~^/x(.*)$ x$1\ndefault blue\n}
    basicauth {\nann $2a$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n}""")
RARE_CHANGES = lines(r"""
    basicauth {\nann $2a$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n}
    request_body {\nmax_size 1\n}
    log
    root @DIR@/www
    push
    tracing x""")
PROXY = lines(r"""
    header_up Host {upstream_hostport}
    header_up Host inner.test
    header_up X-Team blue
    header_up -X-Gone
    header_up X-Real-IP {remote_host}
    header_up X-Key {header.X-Role}
    header_up X-P {path}
    header_up X-U {uri}
    header_up +X-More m
    header_down -X-Secret
    header_down X-Down yes
    header_down +X-D {host}
    header_down Cache-Control max-age=5 private
    lb_policy first
    flush_interval -1
    transport http {\ndial_timeout 2s\n}
    rewrite /inner{uri}
    method GET
    to @D@\nlb_policy first
    lb_try_duration 1s
    header_up -Cookie
    header_up X-Forwarded-Host {host}
    header_up X-Scheme {scheme}
    header_up Host {host}
    header_down -Server
    header_up -X-*""")
RARE_PROXY = lines(r"""
    header_up X-Key ^s z
    health_uri /up
    @ok status 200\nhandle_response @ok {\nrespond changed 201\n}
    header_up X-M {method}
    header_up X-Q {query}
    header_up X-S {scheme}
    header_up X-C {cookie.group}
    header_up X-V {query.v}""")
BELOW = [way for way in WAYS if way.endswith("*") and way.count("*") == 1 and way != "*"]
FILE_SERVERS = lines(r"""
    file_server
    try_files {path} /index.html\nfile_server
    try_files {path} {path}/ /x
    file_server /static/*""")
OPTIONS = ["admin off", "auto_https off", "http_port @PORT@", "default_bind 127.0.0.1"]
ORDERS = ["order respond before rewrite", "order request_header first", "order rewrite after basicauth"]
ADDRESSES = ["http://a.test:@PORT@", "http://b.test:@PORT@, http://*.w.test:@PORT@", "http://:@PORT@"]
BLOCKS = ["handle", "handle", "route", "handle_path"]
# What sites import, written once before them.
SNIPPET = ("(common)", ["header X-Common 1", "respond /closed/* 403", "@bot header_regexp User-Agent (?i)badbot", "respond @bot 403"])


def command(program, file, _):
    return [program, "run", "--adapter", "caddyfile", "--config", file]


def matcher(random, names):
    """What stands behind a directive's name: nothing, a path, or the name of a matcher."""
    kind = random.randrange(10)
    if kind < 2:
        return ""
    return " " + random.choice(WAYS if kind < 6 or not names else names)


def with_matcher(random, line, names):
    word, _, rest = line.partition(" ")
    found = matcher(random, names) or (" *" if rest.startswith("/") else "")
    return f"{word}{found} {rest}".rstrip()


def proxy(random, names):
    inner = random.sample(PROXY if some(random, 0.7) else PROXY + RARE_PROXY, random.choice([0, 0, 1, 2]))
    head = f"reverse_proxy{matcher(random, names)} @{random.choice('ABCD')}@"
    return (head, inner) if inner else head


def block(random, names, depth):
    head = random.choice(BLOCKS)
    found = f" {random.choice(BELOW)}" if head == "handle_path" else matcher(random, names)
    return head + found, directives(random, names, random.choice([1, 2, 2, 3]), depth + 1)


def directives(random, names, count, depth=0):
    made = []
    for _ in range(count):
        kind = random.randrange(14)
        if kind < 3:
            made.append(with_matcher(random, random.choice(ACTIONS), names))
        elif kind < 7:
            made.append(with_matcher(random, random.choice(CHANGES if some(random, 0.9) else RARE_CHANGES), names))
        elif kind < 9:
            made.append(proxy(random, names))
        elif kind < 12 and depth < 2:
            made.append(block(random, names, depth))
        elif kind == 12:
            made += ["root * @DIR@/www", random.choice(FILE_SERVERS)]
        elif some(random, 0.5):
            head = f"forward_auth{matcher(random, names)} @{random.choice('AD')}@"
            made.append((head, ["uri /verify", "copy_headers X-Origin"]))
    return made


def named(random, name):
    """A matcher with a name: on one line, or a block of one or two."""
    if some(random, 0.3):
        return name, random.sample(MATCHERS, 2)
    one = random.choice(MATCHERS)
    return f"{name} {one}" if some(random, 0.7) else (name, [one])


def site(random, addresses):
    names = [f"@m{at}" for at in range(random.choice([0, 1, 1, 2]))]
    body = [named(random, name) for name in names]
    shared = ["import common"] if some(random, 0.15) else []
    last = ["reverse_proxy @A@"] if some(random, 0.9) else [("handle_errors", ['respond "{err.status_code}"'])]
    return addresses, [*body, *shared, *directives(random, names, random.randrange(1, 4)), *last]


def draw(random):
    options = OPTIONS + ([random.choice(ORDERS)] if some(random, 0.1) else [])
    addresses = random.sample(ADDRESSES, random.choice([1, 2, 3]))
    if some(random, 0.1):
        addresses = ["http://a.test:@PORT@/api/*"]
    sites = [site(random, one) for one in addresses]
    snippet = [SNIPPET] if any("import common" in body for _, body in sites) else []
    return [("", options), *snippet, *sites]


def write(tree):
    return blocks(tree) + "\n"


def requests(random):
    return drawing.requests(random, METHODS, HOSTS, PATHS, FIELDS)
