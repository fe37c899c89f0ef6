// A reverse proxy with Coraza in front, for the firewall tests of `proto_bench compare`. Without -rules it only forwards.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime/debug"
	"sync"
	"time"

	"github.com/corazawaf/coraza/v3"
	corazahttp "github.com/corazawaf/coraza/v3/http"
)

const corazaModule = "github.com/corazawaf/coraza/v3"

func main() {
	listen := flag.String("listen", "", "address to listen on")
	to := flag.String("to", "", "address to forward to")
	rules := flag.String("rules", "", "file with directives, which includes the rules")
	version := flag.Bool("version", false, "print Coraza's version")
	flag.Parse()
	if *version {
		fmt.Println("Coraza", corazaVersion())
		return
	}
	if err := run(*listen, *to, *rules); err != nil {
		log.Fatal(err)
	}
}

func run(listen, to, rules string) error {
	if listen == "" || to == "" {
		return errors.New("-listen and -to are required")
	}
	handler := forward(to)
	if rules != "" {
		waf, err := coraza.NewWAF(coraza.NewWAFConfig().WithDirectivesFromFile(rules))
		if err != nil {
			return err
		}
		handler = corazahttp.WrapHandler(waf, handler)
	}
	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Hour}
	return server.ListenAndServe()
}

func forward(to string) http.Handler {
	target := &url.URL{Scheme: "http", Host: to}
	return &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(target)
			request.Out.Host = request.In.Host
		},
		Transport: &http.Transport{
			MaxIdleConns:        2048,
			MaxIdleConnsPerHost: 1024,
			IdleConnTimeout:     time.Hour,
			DisableCompression:  true,
		},
		BufferPool: &buffers{sync.Pool{New: func() any { return make([]byte, 32*1024) }}},
	}
}

// buffers keeps what the proxy copies bodies with.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte       { return b.pool.Get().([]byte) }
func (b *buffers) Put(buffer []byte) { b.pool.Put(buffer) }

func corazaVersion() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range info.Deps {
			if module.Path == corazaModule {
				return module.Version
			}
		}
	}
	return "unknown"
}
