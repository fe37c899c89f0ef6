"""Random configurations of HAProxy."""

import re

from importing import drawing
from importing.drawing import PASSWORD, WRONG, lines, sections, some

NAME, FORMAT, FILE = "haproxy", "haproxy", "haproxy.cfg"
ENDS = 0  # Lines that end a block.
METHODS = "GET GET GET POST HEAD DELETE OPTIONS PUT".split()
HOSTS = r"""a.test A.test www.a.test b.test api.b.test none.test 10.0.0.1""".split()
PATHS = r"""/ /api /api/ /api/x /API/x /apix /api/v1/x?q=1 /admin /admin/ /admin/x /Admin/x /administrator /img/a.png
/img/a.PNG /img/a%20b.png /x /x/12 /x/ab /secret /secret/x /secret//x //secret/x /secret%2fx /secret;a=b /old/x
/old/x?y=1 /strip/a/b?c=d /strip/ /strip /?debug=1 /x?debug=1&debug=2 /x?DEBUG=1 /x?a;debug=1 /?v=2 /x?v=2&w /x?
/x?a=b?c=d /.git/x /x%3Fy /a+b /img//a.png /foo.php /foo.php/bar /x.PHP?z /health /healthx /one/two/three""".split()
FIELDS = ["", PASSWORD, WRONG] + lines(r"""
    x-key: sesame
    X-Key: Sesame
    x-key: a, sesame
    x-key: sesame\r\nx-key: other
    user-agent: BadBot/1
    cookie: group=test; a=b
    cookie: Group=test
    x-gone: here
    x-role: admin
    x-forwarded-for: 10.0.0.1
    x-forwarded-proto: https
    referer: http://evil.test/
    x-num: 7
    x-num: 12
    accept: text/html
    x-empty:
    content-type: application/json""")
ACLS = lines(r"""
    path /
    path /x /health
    path -i /ADMIN
    path_beg /api
    path_beg /admin /secret
    path_beg -i /admin
    path_end .png .php
    path_end -i .png
    path_reg ^/x/[0-9]+$
    path_reg -i ^/admin
    path_sub secret
    path_dir secret
    path_dir admin
    path -m beg /api/
    path -m reg ^/(api|img)/
    path -m end .php
    path,lower -m beg /admin
    path,url_dec -m beg /admin
    path_len gt 6
    hdr(host) -i a.test
    hdr(host) a.test b.test
    hdr(host) -m dom b.test
    hdr_beg(host) -i www.
    hdr_end(host) -i .test
    hdr_dom(host) -i a.test
    hdr_reg(host) -i ^[a-z]+\.test$
    hdr(x-key) sesame
    hdr(x-key) -i sesame
    hdr(x-key) -m found
    req.hdr(x-key) -m found
    req.hdr(x-key) -m len 6
    hdr_sub(user-agent) -i badbot
    hdr_beg(user-agent) Bad
    hdr_cnt(x-key) gt 1
    hdr_cnt(x-key) 0
    hdr(x-num) 7
    req.hdr_val(x-num) gt 9
    hdr_val(x-num) lt 10
    hdr(x-role) admin
    src 127.0.0.1
    src 10.0.0.0/8
    src 127.0.0.0/8 10.0.0.0/8
    method POST PUT
    method GET HEAD
    method DELETE
    url_param(debug) 1
    url_param(debug) -m found
    urlp(v) 2
    url_param(v) -m int gt 1
    url_beg /api
    url_sub debug
    url_reg \?.*v=2
    query -m sub debug
    query -m found
    ssl_fc
    cook(group) test
    req.cook(group) -m found
    cook_sub(group) te
    http_auth(staff)
    http_auth_group(staff) admins
    always_true
    always_false
    nbsrv(web) gt 0
    nbsrv(web) lt 1
    hdr_ip(x-forwarded-for) 10.0.0.0/8
    hdr(referer) -m sub evil
    hdr(accept) -m beg text/
    dst_port 1
    base_beg a.test/api
    base -m beg a.test/x
    req.ver 1.1
    hdr(x-empty) -m found
    hdr(content-type) application/json
    path -f @DIR@/paths.lst
    hdr(host),lower a.test
    hdr(host),host_only a.test
    req.hdr(host),field(1,:) -i a.test
    path,field(2,/) api
    var(txn.p) -m beg /api
    capture.req.hdr(0) -m found
    rand(100) lt 0
    date gt 0
    url_dom a.test
    path_beg,url_dec /admin
    path -m sub -i SECRET
    path -i -m beg /API /x
    path -m dir admin secret
    path_reg -i (\.php|\.png)$
    path_beg -f @DIR@/paths.lst
    hdr(host) -f @DIR@/hosts.lst
    hdr_sub(cookie) group=test
    hdr_end(host) -i b.test
    hdr_reg(user-agent) -i (bad|evil)bot
    hdr(x-key),lower sesame
    hdr(x-key) -m beg ses
    hdr(x-key) -m str sesame open
    req.fhdr(x-key) sesame
    hdr(x-key,1) sesame
    hdr(x-key,-1) other
    hdr_len(x-key) gt 3
    url_param(v) -m str 2
    urlp_reg(v) ^[0-9]+$
    urlp_sub(debug) 1
    url -m beg /x?
    url_end 1
    path_end /
    path_dom admin
    path_len 1
    method -i post
    method OPTIONS TRACE
    src -f @DIR@/nets.lst
    src 127.0.0.1 10.0.0.1
    var(txn.who) sesame
    var(txn.path) -m beg /api
    sc_http_req_rate(0) gt 100000
    src_http_req_rate(st) gt 100000
    sc0_conn_rate gt 100000
    be_conn gt 1000
    srv_is_up(web/s1)
    req.cook(group) test
    cook(group) -m beg te
    str(a) a
    bool(true)
    path,map(@DIR@/paths.map) yes
    hdr(host),lower,map_end(@DIR@/hosts.map) -m found
    http_first_req
    req.body_size gt 100""")
INLINE = lines(r"""
    path_beg /api
    path /x
    method POST
    hdr(x-key) -m found
    hdr(host) -i b.test
    src 10.0.0.0/8
    path_end .png
    url_param(debug) 1
    ssl_fc
    hdr(x-role) admin
    path_sub secret""")
NAMED = r"""METH_GET METH_POST METH_OPTIONS HTTP_1.1 LOCALHOST TRUE FALSE HTTP_CONTENT HTTP_URL_SLASH""".split()
ACTIONS = lines(r"""
    deny
    deny deny_status 404
    deny deny_status 401
    deny deny_status 429
    tarpit
    reject
    redirect location /new
    redirect location https://else.test%[path] code 301
    redirect prefix https://else.test code 302
    redirect prefix /v2
    redirect scheme https code 301
    redirect location / drop-query code 303
    redirect prefix https://q.test drop-query
    redirect scheme https
    redirect prefix https://www.else.test code 301 drop-query append-slash
    redirect prefix / append-slash
    redirect location /a set-cookie seen=1
    redirect location /%[path] code 307
    redirect location https://%[hdr(host)]%[capture.req.uri] code 308
    redirect location https://www.%[hdr(host)]%[path]?%[query] code 301
    redirect code 301 location /first
    silent-drop
    deny status 410
    deny deny_status 503
    return status 200 content-type text/html string "<p>hi</p>" hdr x-own 1
    return status 503
    return
    return status 200 content-type text/plain string ok
    return status 200 content-type text/plain lf-string "%[path]"
    return status 404
    return status 403
    return status 204
    auth realm Staff
    auth
    allow""")
CHANGES = lines(r"""
    set-path /fixed
    set-path /v2%[path]
    replace-path /strip/(.*) /\1
    replace-path ^/api(/.*)?$ \1
    replace-path (.*) /secret\1
    replace-pathq ^/old/(.*) /new/\1
    replace-uri ^/old/(.*) /new/\1
    set-query a=b
    set-query %[query]&x=1
    set-uri /u%[path]
    set-method POST
    set-header X-Team blue
    set-header X-Path %[path]
    set-header X-Host %[req.hdr(host)]
    set-header Host inner.test
    add-header X-More more
    add-header X-Key added
    del-header X-Gone
    del-header X-Key
    del-header ^X- -m reg
    set-header X-Key sesame
    set-header X-Role guest
    set-header X-Src %[src]
    replace-header X-Key (.*) v-\1
    replace-value X-Key sesame open
    set-header X-Q %[query]
    set-header X-U %[url_param(v)]
    set-header X-Forwarded-Proto http
    set-header X-Real-IP %[src]
    set-header X-Low %[req.hdr(host),lower]
    add-header X-Path %[path]
    set-header X-Lit 100%%
    set-header X-Empty %[req.hdr(x-none)]
    set-path /fix/%[path]
    set-path %[path]/
    replace-path /x(.*) /y\1
    replace-path ^([^?]*)$ /p\1
    del-header x-k -m beg
    del-header Cookie
    replace-value Cookie (.*)a=b(.*) \1\2
    set-query ""
    set-var(txn.path) path
    set-var(txn.who) req.hdr(x-key)""")
RARE_CHANGES = lines(r"""
    set-header X-Low %[path,lower]
    set-header X-Sch https
    normalize-uri path-merge-slashes
    set-var(txn.p) path
    set-log-level silent
    capture req.hdr(host) len 20
    set-src hdr(x-forwarded-for)
    set-tos 0x10
    set-header X-M %[method]
    set-header X-B %[base]
    early-hint Link x
    set-timeout server 5s
    disable-l7-retry
    cache-use none""")
RESPONSES = lines(r"""
    set-header X-Frame-Options DENY
    set-header Strict-Transport-Security "max-age=1; includeSubDomains"
    add-header Set-Cookie "a=b; path=/"
    add-header X-More more
    del-header X-Secret
    del-header x-powered-by
    set-header Cache-Control no-store""")
RARE_RESPONSES = lines(r"""
    replace-header X-Secret s(.) t\1
    deny if { status 200 }
    set-status 503 if { status 404 }
    set-header X-T %[res.hdr(x-secret)]
    replace-value Cache-Control max-age=5 private
    set-header X-R 1 if { res.hdr(x-powered-by) php }
    set-header X-Ok yes if { status 200 }
    return status 404 if { status 200 } { hdr(x-secret) none }
    set-header X-P %[capture.req.uri]""")
BACKEND_LINES = lines("""
    balance roundrobin
    option httpchk GET /
    cookie SRV insert indirect nocache
    balance source
    stick-table type ip size 1k expire 1m
    option forwardfor
    errorfile 503 /dev/null
    option httpchk
    default-server inter 60s
    balance leastconn
    balance uri
    balance hdr(host)
    hash-type consistent
    timeout server 3s
    option redispatch
    stick on src
    http-reuse always
    acl own path_beg /secret
    http-send-name-header X-Server
    option httpclose
    compression algo gzip
    retries 2""")
FRONTEND_LINES = lines("""
    redirect scheme https if !{ ssl_fc }
    redirect location /home if { path / }
    monitor-uri /health
    http-request track-sc0 src table st
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100000 }
    redirect prefix https://r.test code 301 if { hdr(host) -i b.test }
    redirect location /gone if { path_beg /old } { method GET }
    tcp-request connection reject if { src 10.0.0.0/8 }
    tcp-request inspect-delay 1s
    option forwardfor except 127.0.0.0/8
    unique-id-format %{+X}o
    maxconn 1000
    http-after-response set-header X-After 1
    capture request header Host len 32
    capture request header Host len 32""")
MAPS = lines("""
    %[req.hdr(host),lower,map(@DIR@/hosts.map,web)]
    %[req.hdr(host),field(1,:),lower,map(@DIR@/hosts.map)]
    %[path,map_beg(@DIR@/prefixes.map,web)]
    %[path,map_reg(@DIR@/regexes.map)]
    %[req.hdr(x-role),map_str(@DIR@/roles.map,api)]
    %[hdr(host),map_dom(@DIR@/hosts.map)]
    %[path,map_end(@DIR@/ends.map,web)]
    %[req.hdr(x-role)]""")
USERS = ("userlist staff", ["group admins users ann", "user ann insecure-password secret",
                            "user bob insecure-password builder"])
START = [("global", ["maxconn 100"]),
         ("defaults", ["mode http", "timeout connect 2s", "timeout client 5s", "timeout server 5s",
                      "timeout tarpit 50ms"])]


def command(program, file, _):
    return [program, "-db", "-q", "-f", file]


def term(random, names):
    kind = random.randrange(6)
    if kind == 0:
        text = "{ " + random.choice(INLINE) + " }"
    else:
        text = random.choice(NAMED if kind == 1 or not names else names)
    return ("!" if some(random, 0.25) else "") + text


def condition(random, names):
    """` if …` of one to three terms, or rarely nothing."""
    if some(random, 0.08):
        return ""
    joined = term(random, names)
    for _ in range(random.choice([0, 0, 1, 1, 2])):
        joined += random.choice([" ", " ", " or ", " || "]) + term(random, names)
    return random.choice([" if ", " if ", " if ", " unless "]) + joined


def rule(random, names):
    kind = random.randrange(10)
    if kind < 4:
        return "http-request " + random.choice(ACTIONS) + condition(random, names)
    if kind < 8:
        change = random.choice(CHANGES if some(random, 0.85) else RARE_CHANGES)
        return "http-request " + change + (condition(random, names) if some(random, 0.6) else "")
    return "http-response " + random.choice(RESPONSES if some(random, 0.8) else RARE_RESPONSES)


def acls(random, count):
    """Names, and the lines that say what they mean."""
    names = [random.choice("c1 c2 c3 c4 c5".split()) for _ in range(count)]
    return sorted(set(names)), [f"acl {name} {random.choice(ACLS)}" for name in names]


def backend(random, name, address):
    names, body = acls(random, random.choice([0, 0, 0, 1]))
    body += [rule(random, names) for _ in range(random.choice([0, 0, 0, 1, 2]))]
    body += random.sample(BACKEND_LINES, random.choice([0, 0, 0, 1]))
    option = random.choice(["", "", " check inter 60s", " weight 10", " maxconn 50", " cookie c1", " send-proxy-v2"][:6])
    more = [f"server s2 {random.choice(['@DEAD@ backup', '@D@ backup', '@D@ disabled', '@D@ weight 0'])}"]
    return f"backend {name}", [*body, f"server s1 {address}{option}", *(more if some(random, 0.2) else [])]


def frontend(random):
    names, body = acls(random, random.randrange(1, 4))
    body = ["bind 127.0.0.1:@PORT@", *body]
    body += [rule(random, names) for _ in range(random.randrange(1, 4))]
    body += [random.choice(FRONTEND_LINES)] if some(random, 0.15) else []
    for _ in range(random.choice([0, 0, 1, 2])):
        chosen = random.choice(["api", "files", "web"])
        if some(random, 0.15):
            body.append(f"use_backend {random.choice(MAPS)}{condition(random, names) if some(random, 0.4) else ''}")
        body.append(f"use_backend {chosen}{condition(random, names) or ' if TRUE'}")
    body += [f"default_backend {random.choice(['web', 'web', 'api'])}"] if some(random, 0.9) else []
    return "frontend main", body


def draw(random):
    front = frontend(random)
    backends = [backend(random, *one) for one in (("web", "@A@"), ("api", "@B@"), ("files", "@C@"))]
    backends = [one for one in backends if f"_{one[0]}" in sections([front])]
    users = [USERS] if "http_auth" in sections([front, *backends]) else []
    text = sections([front, *backends])
    if "%[" in "".join(line for line in front[1] if line.startswith("use_backend")):
        known = {one[0].split()[1] for one in backends}
        backends += [backend(random, *one) for one in (("web", "@A@"), ("api", "@B@"), ("files", "@C@"))
                     if one[0] not in known]
    tables = ["stick-table type ip size 1k expire 1m store http_req_rate(10s)"]
    table = [("backend st", tables)] if re.search(r"\bst\b", text) else []
    return [*START, *users, front, *backends, *table]


def write(tree):
    return sections(tree)


def requests(random):
    return drawing.requests(random, METHODS, HOSTS, PATHS, FIELDS)
