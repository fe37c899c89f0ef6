// Peers from the Go world for run.py: a DTLS client (pion), and HTTP/3 clients, servers and a NAT that forgets (quic-go).
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/pion/dtls/v3"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const patience = 10 * time.Second

func main() {
	commands := map[string]func([]string) error{
		"dtls":      dtlsClient,
		"h3":        h3Client,
		"h3-server": h3Server,
		"h3-early":  earlyClient,
		"both":      bothServer,
		"moving":    movingClient,
	}
	command := commands[os.Args[1]]
	if command == nil {
		fmt.Fprintln(os.Stderr, "no such peer:", os.Args[1])
		os.Exit(2)
	}
	if err := command(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dtls ADDRESS [CERTIFICATE KEY]: has messages of several sizes echoed, then says goodbye.
func dtlsClient(args []string) error {
	address, err := net.ResolveUDPAddr("udp", args[0])
	if err != nil {
		return err
	}
	config := &dtls.Config{InsecureSkipVerify: true, ExtendedMasterSecret: dtls.RequireExtendedMasterSecret}
	if len(args) == 3 {
		certificate, err := tls.LoadX509KeyPair(args[1], args[2])
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	conn, err := dtls.Dial("udp", address, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	buffer := make([]byte, 8192)
	for _, size := range []int{1, 64, 512, 1100} {
		message := strings.Repeat("d", size)
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte(message)); err != nil {
			return err
		}
		read, err := conn.Read(buffer)
		if err != nil {
			return err
		}
		if string(buffer[:read]) != message {
			return fmt.Errorf("%d bytes of %d came back", read, size)
		}
	}
	return conn.Close()
}

func transport(name string) *http3.Transport {
	return &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: name}}
}

// h3 URL NAME [WANTED]: posts bodies of several sizes and expects them back, or gets and expects WANTED.
func h3Client(args []string) error {
	round := transport(args[1])
	defer round.Close()
	client := &http.Client{Transport: round, Timeout: patience}
	if len(args) > 2 {
		return expect(client, args[0], args[2])
	}
	for _, size := range []int{1, 1000, 1 << 20} {
		body := strings.Repeat("h", size)
		answer, err := client.Post(args[0], "text/plain", strings.NewReader(body))
		if err != nil {
			return err
		}
		got, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK || string(got) != body {
			return fmt.Errorf("status %d, %d bytes of %d came back", answer.StatusCode, len(got), size)
		}
	}
	return nil
}

func expect(client *http.Client, url, wanted string) error {
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if string(got) != wanted {
		return fmt.Errorf("%q answered, not %q", got, wanted)
	}
	return nil
}

// h3-server ADDRESS CERT KEY WORD: answers everything with WORD and the address it was asked from.
func h3Server(args []string) error {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, args[3])
	})
	server := http3.Server{Addr: args[0], Handler: answer}
	return server.ListenAndServeTLS(args[1], args[2])
}

// both ADDRESS CERT KEY: a server over TCP that offers HTTP/3, which it speaks on the same port. Answers with the version
// it was asked in, and what it is told of early data.
func bothServer(args []string) error {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s early=%s", r.Proto, r.Header.Get("Early-Data"))
	})
	return http3.ListenAndServeTLS(args[0], args[1], args[2], answer)
}

// h3-early URL NAME: asks, goes, and asks again with the first octets of the next connection.
func earlyClient(args []string) error {
	tickets, tokens := tls.NewLRUClientSessionCache(8), quic.NewLRUTokenStore(8, 8)
	for _, asked := range []struct{ method, wanted string }{{http.MethodGet, "early="}, {http3.MethodGet0RTT, "early=1"}} {
		round := &http3.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, ServerName: args[1], ClientSessionCache: tickets,
		}, QUICConfig: &quic.Config{TokenStore: tokens}}
		request, err := http.NewRequest(asked.method, args[0], nil)
		if err != nil {
			return err
		}
		request.Host = args[1]
		answer, err := (&http.Client{Transport: round, Timeout: patience}).Do(request)
		if err != nil {
			return fmt.Errorf("%s: %w", asked.method, err)
		}
		got, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(string(got), asked.wanted) {
			return fmt.Errorf("%s: %q answered, not %q", asked.method, got, asked.wanted)
		}
		// The tickets may come after the answer.
		time.Sleep(200 * time.Millisecond)
		if err := round.Close(); err != nil {
			return err
		}
	}
	return nil
}

// moving ADDRESS NAME WANTED: asks, changes the client's port as a NAT does that forgets, and asks again on the same
// connection.
func movingClient(args []string) error {
	nat, err := newNat(args[0])
	if err != nil {
		return err
	}
	round := transport(args[1])
	defer round.Close()
	client := &http.Client{Transport: round, Timeout: patience}
	url := "https://" + nat.inside.LocalAddr().String() + "/"
	for n := range 4 {
		if err := expect(client, url, args[2]); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		if err := nat.forget(); err != nil {
			return err
		}
	}
	return nil
}

// A NAT with one client, in front of one server.
type nat struct {
	inside  *net.UDPConn
	server  *net.UDPAddr
	outside chan *net.UDPConn
	client  chan net.Addr
}

func newNat(server string) (*nat, error) {
	address, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		return nil, err
	}
	inside, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	nat := &nat{inside: inside, server: address, outside: make(chan *net.UDPConn, 1), client: make(chan net.Addr, 1)}
	if err := nat.open(); err != nil {
		return nil, err
	}
	go nat.outward()
	return nat, nil
}

func (n *nat) open() error {
	outside, err := net.DialUDP("udp", nil, n.server)
	if err != nil {
		return err
	}
	n.outside <- outside
	go n.inward(outside)
	return nil
}

// The next datagram leaves from another port.
func (n *nat) forget() error {
	old := <-n.outside
	if err := old.Close(); err != nil {
		return err
	}
	return n.open()
}

func (n *nat) outward() {
	buffer := make([]byte, 65536)
	for {
		read, from, err := n.inside.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case <-n.client:
		default:
		}
		n.client <- from
		outside := <-n.outside
		_, _ = outside.Write(buffer[:read])
		n.outside <- outside
	}
}

func (n *nat) inward(outside *net.UDPConn) {
	buffer := make([]byte, 65536)
	for {
		read, err := outside.Read(buffer)
		if err != nil {
			return
		}
		client := <-n.client
		_, _ = n.inside.WriteTo(buffer[:read], client)
		n.client <- client
	}
}
