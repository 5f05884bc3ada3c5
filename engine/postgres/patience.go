// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// replyMargin, unless Options say otherwise, is how much longer than statement_timeout the engine waits for the server. Whatever the server
// still has to say about a statement that ran too long is worth more than the engine's own guess.
const replyMargin = 5 * time.Second

// endLimit bounds the end of a transaction that is not a round's.
const endLimit = 10 * time.Second

// SilentError says that the server did not answer: a frozen process, or a network that swallows packets. The
// connection was closed. What became of the statements that were sent is not known.
type SilentError struct{ Waited time.Duration }

func (e *SilentError) Error() string {
	return fmt.Sprintf("the server was silent for %v: its process or the network is stuck, and the connection was closed", e.Waited)
}

// Timeout and Temporary make it a net.Error: the driver then reads again where it would otherwise forget why.
func (e *SilentError) Timeout() bool { return true }

// Temporary is false: the connection is gone.
func (e *SilentError) Temporary() bool { return false }

// patient is a connection that waits only so long for the server, in every read and in every write. It sits
// below the driver, so that no round trip can forget its deadline: not that of a handler, not one of River's.
type patient struct {
	net.Conn

	mu    sync.Mutex
	limit time.Duration // 0 waits for ever
	read  time.Time     // the deadlines that the driver asked for; zero is none
	write time.Time

	silent *SilentError // it was given up
}

// Read waits for the next bytes.
func (p *patient) Read(b []byte) (int, error) {
	limit := p.begin(&p.read, p.Conn.SetReadDeadline)
	n, err := p.Conn.Read(b)
	return n, p.end(err, limit, &p.read)
}

// Write waits until the bytes are on their way.
func (p *patient) Write(b []byte) (int, error) {
	limit := p.begin(&p.write, p.Conn.SetWriteDeadline)
	n, err := p.Conn.Write(b)
	return n, p.end(err, limit, &p.write)
}

// begin sets the deadline of what comes now: the driver's or the limit, whichever is earlier.
func (p *patient) begin(asked *time.Time, set func(time.Time) error) (limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := *asked
	if p.limit > 0 {
		if own := time.Now().Add(p.limit); at.IsZero() || own.Before(at) {
			at = own
		}
	}
	_ = set(at) // fails on a closed connection, and then so does what follows
	return p.limit
}

// end tells a silent server from a deadline that the driver asked for, which it knows how to take.
func (p *patient) end(err error, limit time.Duration, asked *time.Time) error {
	if err == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent != nil {
		return p.silent
	}
	if limit <= 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if !asked.IsZero() && !asked.After(time.Now()) {
		return err
	}
	p.silent = &SilentError{limit}
	_ = p.Close()
	return p.silent
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (p *patient) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetReadDeadline keeps what the driver asks for, for this read and the next ones.
func (p *patient) SetReadDeadline(t time.Time) error {
	return p.ask(&p.read, t, p.Conn.SetReadDeadline)
}

// SetWriteDeadline keeps what the driver asks for, for this write and the next ones.
func (p *patient) SetWriteDeadline(t time.Time) error {
	return p.ask(&p.write, t, p.Conn.SetWriteDeadline)
}

func (p *patient) ask(asked *time.Time, t time.Time, set func(time.Time) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	*asked = t
	if t.IsZero() && p.limit > 0 {
		t = time.Now().Add(p.limit) // for what is waiting now
	}
	return set(t)
}

// usePatience makes the connections of a configuration patient. Connecting ends within the limit as well.
func usePatience(config *pgx.ConnConfig, limit time.Duration) {
	if limit <= 0 {
		return
	}
	if config.ConnectTimeout <= 0 || config.ConnectTimeout > limit {
		config.ConnectTimeout = limit
	}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &patient{Conn: conn, limit: limit}, nil
	}
}

// untilDone lets a connection wait for a statement that may take longer than those of rounds. The function
// that it returns takes that back.
func untilDone(conn *pgx.Conn) (back func()) {
	for layer := conn.PgConn().Conn(); ; {
		switch c := layer.(type) {
		case *patient:
			c.mu.Lock()
			limit := c.limit
			c.limit = 0
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				c.limit = limit
				c.mu.Unlock()
			}
		case interface{ NetConn() net.Conn }: // TLS
			layer = c.NetConn()
		default:
			return func() {}
		}
	}
}

// lingering is a context that outlives ctx by grace and no longer: what ends a transaction must still be
// sent when the round was cancelled, and must not use up the time of whoever waits for the round.
func lingering(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() { stop(); cancel() }
}
