"""Random configurations of nginx."""

from importing import drawing
from importing.drawing import PASSWORD, WRONG, blocks, lines, some

NAME, FORMAT, FILE = "nginx", "nginx", "nginx.conf"
ENDS = 1  # Lines that end a block.
METHODS = "GET GET GET POST HEAD DELETE OPTIONS PUT".split()
NAMES = r"a.test www.a.test *.w.test .d.test b.test c.test e.test x.w.test _ ~^(\w+)\.r\.test$ ~^[ab] www.*".split()
HOSTS = """q.r.test www.z.test a.test A.test a.test:23010 a.test. www.a.test x.w.test y.x.w.test d.test q.d.test c.test e.test b.test
none.test""".split()
PLACES = "/ /api /api/ /api/v1/ /app /app/ /admin /admin/ /img/ /x /secret /secret/ /pub/".split()
REGEXES = r"""\.php$ ^/api/(\w+)/(\w+) \.(png|jpg)$ ^/admin /\. ^/x/\d+$ ^/(en|de)/(.*)$
\.(?:css|js)$ private""".split()
TARGETS = "@A@ @B@ @C@ @D@ pair spare gone $backend".split()
TARGET_PATHS = ["", "", "/", "/v2", "/v2/", "/secret/", "$request_uri", "/w"]
PATHS = """/ /api /api/ /api/x /API/x /api/v1/ /api/v1/x?q=1 /api/foo/bar /api/private /app /app/ /app/x.php /app/a.png
/a.PNG /admin /admin/ /admin/x /Admin/x /administrator /img/a.png /img/a%20b /x /x/12 /x/ab /secret /secret/x /secret//x
//secret/x /secret/../x /x/../secret/x /./secret /secret%2fx /secret;a=b /pub/x /pub/secret /en/x /de/secret/x /.git/x
/a/.ht /x.css?v=1 /old/x /old/x?y=1&z=%20 /new/x /none /?debug=1 /x?debug=1&debug=2 /api/x?DEBUG=1 /api? /x%3Fy /ä /a+b
/y /one/two /old/ /img//a.png /foo.php/bar /x.PHP /static/f.txt /static/ /static /static/none /static/secret.txt""".split()
FIELDS = ["", PASSWORD, WRONG] + lines("""
    x-key: sesame
    X-Key: Sesame
    x-key: open-1
    user-agent: BadBot/1
    cookie: group=test; a=b
    x-gone: here
    x-forwarded-for: 10.0.0.1
    referer: http://evil.test/
    x-real-ip: 10.9.9.9
    x_key: sesame
    content-type: application/json
    referer: http://www.good.test/x
    x-forwarded-proto: http
    upgrade: websocket
    accept: text/html""")
CONDITIONS = lines(r"""
    $http_x_key = sesame
    $http_x_key != sesame
    $http_x_key ~ ^open
    $request_method = POST
    $request_method !~ ^(GET|HEAD)$
    $arg_debug
    $arg_debug = 1
    $http_user_agent ~* "badbot"
    $good_key = 0
    $inside
    $inside = 0
    $host = a.test
    $host != a.test
    $uri ~ ^/secret
    $request_uri ~* /secret
    $cookie_group = test
    $http_referer ~ evil
    $scheme = http
    $remote_addr = 127.0.0.1
    $uri = /x
    $is_post
    $query_string ~ debug
    $args = ""
    $http_cookie ~* group=test
    $limited
    $content_type = application/json
    $request_uri ~ ^/old/(.*)
    $uri ~ ^/x/(\d+)$
    $uri ~* ^/(api|app)/(.*)$
    $moved
    $mobile = 1
    $flag = ab
    $arg_v != 2
    $http_user_agent = ""
    $host ~* ^www\.(.*)$
    -f $request_filename
    !-e $request_filename
    $invalid_referer
    $half = on
    $half
    $request_method ~ ^(POST|PUT)$
    $http_x_forwarded_proto = http
    $http_x_key
    $team != blue
    $https = on""")
ANSWERS = lines("""
    return 403;
    return 404;
    return 401;
    return 200 "fixed";
    return 444;
    return 204;
    return 301 https://$host$request_uri;
    return 302 /new$uri;
    return 410;
    return 307 $scheme://else.test$uri?$args;
    return 301 /x$is_args$args;
    return 302 http://else.test/;
    return 503 "busy";
    return 405;
    return 200 "$host $uri";
    return https://other.test;
    return 301 $moved;
    return 301 $scheme://$host$uri;
    return 302 /y/$1;
    return 302 https://else.test/?u=$uri&q=$arg_v;
    return 403 "no";
    return 418;
    return 308 https://$server_name$request_uri;""")
REWRITES = lines(r"""
    rewrite ^/old/(.*)$ /new/$1@FLAG@;
    rewrite ^/pub/(.*)$ /secret/$1@FLAG@;
    rewrite ^/api/(.*)$ /$1@FLAG@;
    rewrite ^/(en|de)/(.*)$ /$2?lang=$1@FLAG@;
    rewrite ^/x/(\d+)$ /app?id=$1?@FLAG@;
    rewrite ^ /app@FLAG@;
    rewrite ^(.*)$ https://else.test$1@FLAG@;
    rewrite /old /new@FLAG@;
    rewrite ^/app(/.*)?$ /x$1@FLAG@;
    rewrite (?i)^/ADMIN(.*) /app$1@FLAG@;
    rewrite ^/img/(.+)\.png$ /img/$1.jpg@FLAG@;
    rewrite ^/(.*)/$ /$1@FLAG@;
    rewrite ^/x(.*)$ /secret$1@FLAG@;
    rewrite ^([^.]*[^/])$ $1/@FLAG@;
    rewrite ^/old/(.*)$ /new/$1?from=old@FLAG@;
    rewrite ^/one/(?<part>.*)$ /app/$part@FLAG@;
    rewrite ^/api/(.*) /in?p=$1@FLAG@;""")
# What an `if` says besides.
INNER = lines(r"""
    set $team red;
    set $mobile 1;
    set $flag "${flag}a";
    set $rest $1;
    break;
    proxy_pass http://@B@;
    add_header X-If 1;
    root @DIR@/www;""")
SETS = lines(r"""
    set $team blue;
    set $mobile 0;
    set $flag "${flag}b";
    set $rest $uri;
    set $rest $arg_v;
    break;""")
FLAGS = ["", " last", " break", " redirect", " permanent"]
ADDRESSES = ["allow 127.0.0.1;", "allow 10.0.0.0/8;", "allow 127.0.0.0/8;", "deny 127.0.0.1;", "deny 10.0.0.1;"]
USERS = "auth_basic_user_file @DIR@/users;"
METHODS_LEFT = ["limit_except GET", "limit_except GET POST", "limit_except GET HEAD OPTIONS"]
ALONE = lines("""
    deny all;
    internal;
    auth_basic off;
    auth_request /auth;
    auth_request /auth;
    auth_request off;
    limit_req zone=one burst=1000 nodelay;
    client_max_body_size 1;""")
USUAL = lines("""
    proxy_set_header Host $host;
    proxy_set_header Host $http_host;
    proxy_set_header Host fixed.test;
    proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Gone "";
    proxy_set_header X-Path $uri;
    proxy_set_header X-Uri $request_uri;
    proxy_set_header X-Q $args;
    proxy_set_header X-Team blue;
    proxy_set_header X-Plan $plan;
    proxy_set_header Connection "";
    add_header X-Frame-Options DENY;
    add_header X-Always yes always;
    add_header X-Host $host;
    proxy_hide_header X-Powered-By;
    proxy_hide_header X-Secret;
    proxy_set_header X-Team $team;
    proxy_set_header X-Flag $flag;
    proxy_set_header X-Rest $rest;
    proxy_set_header X-Half $half;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Two 1;
    add_header X-Uri $uri;
    add_header X-Moved $moved always;
    client_max_body_size 0;
    proxy_redirect off;""")
RARE = lines("""
    proxy_set_header X-M $request_method;
    add_header Cache-Control no-store;
    proxy_set_header X-Mix "a-$http_x_key-b";
    proxy_set_header X-Sch $scheme;
    proxy_set_header X-C $cookie_group;
    proxy_set_header X-Sn $server_name;
    proxy_set_header X-User $remote_user;
    proxy_http_version 1.1;
    proxy_pass_request_headers off;
    proxy_method GET;
    error_page 404 /x;
    error_page 403 =200 /x;
    error_page 403 404 = @named;
    error_page 401 = @named;
    proxy_intercept_errors on;
    proxy_buffering off;
    error_page 404 = /x;
    error_page 403 /index.html;
    error_page 502 503 /index.html;
    sub_filter A B;
    expires -1;
    limit_rate 100k;
    proxy_set_header X-Up $upstream_addr;
    proxy_set_header X-Part $part;
    default_type application/json;
    add_header X-Secret $upstream_http_x_secret;""")
NAMED = [
    ["proxy_pass http://@D@;"], ["proxy_pass http://@D@;"],
    ["proxy_set_header X-Named 1;", "proxy_pass http://@D@;"],
    ["deny all;", "proxy_pass http://@D@;"],
    ['return 404 "none";'],
    ["rewrite ^ /x break;", "proxy_pass http://@D@;"],
    ["add_header X-Named 1;", "proxy_set_header Host named.test;", "proxy_pass http://@D@;"],
]
TRIES = lines("""
    try_files $uri $uri/ =404;
    try_files $uri @named;
    try_files $uri /x;
    try_files $uri $uri/ /secret/x;
    try_files $uri =403;
    try_files $uri @named;
    try_files /maintenance.html $uri @named;""")
AUTH = ["internal;", "proxy_pass http://@C@/check;", "proxy_pass_request_body off;",
        'proxy_set_header Content-Length "";']
# What is written once for the whole file, where something asks for it: a word of those who ask, and the block.
SHARED = [
    ("$inside", ("geo $inside", ["default 0;", "127.0.0.0/8 1;"])),
    ("zone=one", "limit_req_zone $binary_remote_addr zone=one:1m rate=1000r/s;"),
    ("$good_key", ("map $http_x_key $good_key", ["default 0;", "sesame 1;", "~^open- 1;"])),
    ("$is_post", ("map $request_method $is_post", ["POST 1;", 'default "";'])),
    ("$plan", ("map $http_x_key $plan", ["default free;", "~*SESAME gold;"])),
    ("$limited", ("geo $limited", ["default 0;", "192.0.2.0/24 1;"])),
    ("$backend", ("map $host $backend", ["hostnames;", "default @A@;", "a.test @B@;", "*.w.test @C@;"])),
    ("$half", ('split_clients "x${remote_addr}" $half', ["100% on;", '* "";'])),
    ("$moved", ("map $uri $moved", ['default "";', "/old/x /new/x;", "~^/img/(.+)$ /pub/$1;"])),
    ("$connection_upgrade", ("map $http_upgrade $connection_upgrade", ["default upgrade;", "'' close;"])),
    ("//pair", ("upstream pair", ["server @A@;", "server @A@ weight=1;"])),
    ("//spare", ("upstream spare", ["server @DEAD@;", "server @B@ backup;"])),
    ("//gone", ("upstream gone", ["server @C@;", "server @D@ down;"])),
]


def command(program, file, folder):
    return [program, "-p", folder, "-c", file, "-g",
            "daemon off; master_process off; pid nginx.pid; error_log stderr warn;"]


def guards(random):
    """Lines that turn somebody away, or none."""
    kind = random.randrange(12)
    if kind == 0:
        return [random.choice(ADDRESSES), random.choice(["deny all;", "deny all;", "allow all;"])]
    if kind == 1:
        return ['auth_basic "staff";', USERS]
    if kind == 2:
        way = random.choice(["satisfy any;", "satisfy all;"])
        return [way, random.choice(ADDRESSES[:2]), "deny all;", 'auth_basic "x";', USERS]
    if kind == 3:
        inner = [["deny all;"], ["allow 10.0.0.0/8;", "deny all;"], ['auth_basic "w";', USERS]]
        return [(random.choice(METHODS_LEFT), random.choice(inner))]
    return [] if kind < 6 else [random.choice(ALONE)]


def headers(random):
    pool = USUAL + RARE if some(random, 0.2) else USUAL
    return random.sample(pool, random.choice([0, 0, 1, 1, 2, 3]))


def rewrite(random):
    return random.choice(REWRITES).replace("@FLAG@", random.choice(FLAGS))


def to_target(random, is_regex):
    host = random.choice(TARGETS)
    paths = ["", "$request_uri"] if host == "$backend" else TARGET_PATHS
    return [f"proxy_pass http://{host}{'' if is_regex else random.choice(paths)};"]


def action(random, is_regex):
    """What a location does: passes on, answers, or serves files."""
    kind = random.randrange(12)
    if kind < 7:
        return to_target(random, is_regex)
    if kind < 9:
        return [random.choice(ANSWERS)]
    files = ["root @DIR@/www;"]
    if kind == 9 and some(random, 0.3):
        return ["alias @DIR@/www/static/;"]
    if kind == 9:
        return files + random.choice([[], ["index f.txt;"], ["autoindex off;"]])
    return files + [random.choice(TRIES)]


def condition(random):
    inner = random.choice([random.choice(ANSWERS), random.choice(ANSWERS), rewrite(random), random.choice(INNER)])
    more = [random.choice(INNER[:5])] if some(random, 0.15) else []
    return f"if ({random.choice(CONDITIONS)})", [*more, inner]


def script(random):
    """Some directives that run before a location is chosen, or the access is looked at."""
    made = []
    for _ in range(random.choice([0, 0, 0, 1, 1, 2])):
        kind = random.randrange(8)
        made.append(condition(random) if kind < 4 else rewrite(random) if kind < 7 else random.choice(SETS))
    return made


def location(random, within=None):
    """A location, or one within another whose path is `within`."""
    kind = random.randrange(10)
    path = (within or "") + random.choice(PLACES)
    is_regex = 5 <= kind < 8
    if is_regex:
        path, head = "", f"location {random.choice(['~', '~*'])} {random.choice(REGEXES)}"
    else:
        head = f"location {'= ' if kind == 4 else '^~ ' if kind > 7 else ''}{path}"
    body = script(random)
    body += guards(random) if some(random, 0.45) else []
    body += headers(random) if some(random, 0.4) else []
    body += action(random, is_regex)
    if within is None and kind != 4 and some(random, 0.15):
        body.append(location(random, path.rstrip("/")))
    if "$invalid_referer" in blocks(body):
        body.insert(0, "valid_referers none blocked server_names *.good.test;")
    return head, body


def locations(random):
    """Locations of different paths."""
    found = {}
    for _ in range(random.choice([0, 1, 1, 2, 2, 3])):
        head, body = location(random)
        found.setdefault(head.replace("^~ ", ""), (head, body))
    if "location /" not in found and some(random, 0.7):
        found["location /"] = ("location /", to_target(random, False))
    return list(found.values())


def server(random, number):
    default = " default_server" if number == 0 and some(random, 0.5) else ""
    port = "@PORT@" if number == 0 or some(random, 0.6) else "@PORT2@"
    body = [f"listen 127.0.0.1:{port}{default};",
            f"server_name {' '.join(random.sample(NAMES, random.choice([1, 1, 2, 3])))};"]
    body += script(random)
    body += plain(guards(random)) if some(random, 0.2) else []
    body += headers(random) if some(random, 0.2) else []
    body += locations(random)
    text = blocks(body)
    if "@named" in text:
        body.append(("location @named", random.choice(NAMED)))
    if "$invalid_referer" in text and "valid_referers" not in text:
        body.insert(2, "valid_referers none blocked server_names *.good.test;")
    if "auth_request /auth;" in text:
        body.append(("location = /auth", AUTH))
    return "server", body


def plain(found):
    """The guards that may stand outside of a location."""
    return [one for one in found if isinstance(one, str) and one != "internal;"]


def needed(text):
    """Of what is shared that which a text asks for, also by each other."""
    found = []
    while more := [one for word, one in SHARED if one not in found and word in text]:
        found += more
        text = blocks(more)
    return found


def draw(random):
    http = plain(guards(random)) if some(random, 0.1) else []
    http += headers(random) if some(random, 0.15) else []
    http += [server(random, number) for number in range(random.choice([1, 1, 1, 2, 3]))]
    if "auth_request /auth;" in http:
        http.remove("auth_request /auth;")
    text = blocks(http)
    # What nothing sets would not be a variable.
    names = [name for name in ("team", "mobile", "flag", "rest") if f"${name}" in text or f"${{{name}}}" in text]
    if "$part" in text:
        names.append("part")
    for head, body in [one for one in http if isinstance(one, tuple) and one[0] == "server"]:
        body[2:2] = [f'set ${name} "";' for name in names]
    return [("events", []), ("http", ["access_log off;", *needed(text), *http])]


def write(tree):
    return blocks(tree) + "\n"


def requests(random):
    return drawing.requests(random, METHODS, HOSTS + [f"{host}@2" for host in HOSTS], PATHS, FIELDS)
