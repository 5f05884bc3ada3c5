// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy stands between a client and the server of the tests, and can lose what passes through it without
// closing anything: the half-open connection of a network that broke.
type Proxy struct {
	URL string // leads through the proxy

	network, address string // of the server
	listener         net.Listener

	mu    sync.Mutex
	pairs []*pair
	hole  bool // new connections are swallowed too
	shut  bool // new connections are closed
	gone  bool
	wait  sync.WaitGroup
}

// pair is one connection through the proxy.
type pair struct {
	client, server net.Conn
	dead, mute     atomic.Bool // nothing passes; replies do not
}

// NewProxy makes a proxy to the database that a URL names. It ends with the test.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	config, err := pgconn.ParseConfig(to)
	if err != nil {
		t.Fatalf("read the URL of the test database: %v", err)
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatalf("read the URL of the test database: %v", err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the proxy: %v", err)
	}
	p := &Proxy{listener: listener}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	query := u.Query()
	query.Del("host")
	query.Del("port")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = listener.Addr().String(), query.Encode()
	p.URL = u.String()
	p.wait.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), p.network, p.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		one := &pair{client: client, server: server}
		p.mu.Lock()
		one.dead.Store(p.hole)
		p.pairs = append(p.pairs, one)
		gone := p.gone || p.shut
		p.mu.Unlock()
		if gone {
			one.close()
		}
		p.wait.Go(func() { one.pass(server, client, &one.dead) })
		p.wait.Go(func() { one.pass(client, server, &one.mute) })
	}
}

// pass carries bytes one way and drops them once the pair is dead or lost is set. The end of one side is the
// end of the other, unless it is dead: then neither side learns anything.
func (p *pair) pass(to, from net.Conn, lost *atomic.Bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if dead := p.dead.Load() || lost.Load(); !dead && n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			if !p.dead.Load() || errors.Is(err, net.ErrClosed) {
				p.close()
			}
			return
		}
	}
}

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// Swallow loses everything that is sent through the connections that exist, in both directions, for good.
// With also, new connections are lost too until Restore.
func (p *Proxy) Swallow(also bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = also
	for _, one := range p.pairs {
		one.dead.Store(true)
	}
}

// LoseReplies loses what the server sends through the connections that exist, for good. What the client sends
// still arrives.
func (p *Proxy) LoseReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.pairs {
		one.mute.Store(true)
	}
}

// Restore lets new connections through again.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole, p.shut = false, false
}

// Refuse closes every connection, and every new one until Restore.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
	for _, one := range p.pairs {
		one.close()
	}
	p.pairs = nil
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.Refuse()
	p.wait.Wait()
}

// String says where the proxy leads.
func (p *Proxy) String() string { return fmt.Sprintf("proxy to %s", p.address) }
