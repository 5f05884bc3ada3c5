// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// pooler hands connections to a server out to clients, for a transaction or for a session, and tells each client
// a process number of its own making, as poolers do.
type pooler struct {
	t      testing.TB
	server string
	whole  bool // for a session

	mu   sync.Mutex
	idle []*pgconn.HijackedConn // the last one back is the first one out
	all  []net.Conn
}

// Pooler starts a pooler in front of the server of a URL, by transaction or by session, and answers the URL under
// which it is reached. It ends with the test.
func Pooler(t testing.TB, server string, bySession bool) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pooler{t: t, server: server, whole: bySession}
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.keep(conn)
			clients.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for _, conn := range p.all {
			_ = conn.Close()
		}
		p.mu.Unlock()
		clients.Wait()
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return "postgres://" + u.User.String() + "@" + listener.Addr().String() + u.Path + "?sslmode=disable"
}

func (p *pooler) keep(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, conn)
}

// take gives a connection to the server that nobody uses.
func (p *pooler) take() (*pgconn.HijackedConn, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		conn := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return conn, nil
	}
	p.mu.Unlock()
	conn, err := pgconn.Connect(context.WithoutCancel(p.t.Context()), p.server)
	if err != nil {
		return nil, err
	}
	hijacked, err := conn.Hijack()
	if err == nil {
		p.keep(hijacked.Conn)
	}
	return hijacked, err
}

func (p *pooler) give(conn *pgconn.HijackedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, conn)
}

// serve passes on what a client sends, statement by statement.
func (p *pooler) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	client := pgproto3.NewBackend(conn, conn)
	for {
		message, err := client.ReceiveStartupMessage()
		if err != nil {
			return
		}
		if _, plain := message.(*pgproto3.StartupMessage); plain {
			break
		}
		if _, err := conn.Write([]byte("N")); err != nil { // no TLS here
			return
		}
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	client.Send(&pgproto3.BackendKeyData{ProcessID: 4_000_000_000, SecretKey: []byte{1, 2, 3, 4}})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if client.Flush() != nil {
		return
	}
	var server *pgconn.HijackedConn
	for {
		message, err := client.Receive()
		if err != nil {
			return
		}
		if _, ends := message.(*pgproto3.Terminate); ends {
			if server != nil {
				p.give(server)
			}
			return
		}
		if server == nil {
			if server, err = p.take(); err != nil {
				p.t.Errorf("the pooler connects: %v", err)
				return
			}
		}
		server.Frontend.Send(message)
		if server.Frontend.Flush() != nil {
			return
		}
		switch message.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
		default:
			continue
		}
		status, err := answer(server.Frontend, client)
		if err != nil {
			return
		}
		if status == 'I' && !p.whole {
			p.give(server)
			server = nil
		}
	}
}

// answer passes on what the server says, up to where it is ready again.
func answer(server *pgproto3.Frontend, client *pgproto3.Backend) (status byte, err error) {
	for {
		message, err := server.Receive()
		if err != nil {
			return 0, err
		}
		client.Send(message)
		if ready, ok := message.(*pgproto3.ReadyForQuery); ok {
			return ready.TxStatus, client.Flush()
		}
	}
}
