// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// WakeApplication is the application name of the connection that listens, as pg_stat_activity shows it.
const WakeApplication = "bothy-consumer-wake"

// channel is the channel on which a commit that appended events notifies.
const channel = "event_log"

// Waker listens for appended events on one connection of its own. Nothing depends on it but speed: a
// notification that is lost is made up for by the poll.
type Waker struct {
	URL        string        // a connection that LISTEN works on: not through a pooler in transaction mode
	Backoff    time.Duration // the first wait before connecting again; doubles each time
	BackoffCap time.Duration // the longest wait
	// KeepAlive is how long the connection may be silent before it is asked for a sign of life, how long it
	// may take to give one, and how long it may take to be made. Zero means 30 seconds.
	KeepAlive time.Duration
	// Changed is told when listening begins, with nil, and when it ends, with the reason. It may be nil.
	Changed func(error)
	// Probe sends a notification by another way. Each time that listening begins it is called, and Heard is told
	// whether anything arrived within ProbeLimit (zero means 5 seconds), and later when something does after all:
	// a pooler in transaction mode accepts LISTEN and delivers nothing. Nil, or an error, asks for nothing.
	Probe      func(context.Context) error
	ProbeLimit time.Duration
	Heard      func(bool)
	// Present is the schema of an engine that runs: the connection shows for as long as it lives that one does. Empty
	// shows nothing.
	Present string
	// Deaf makes a connection that shows presence alone: it does not listen, and wakes nobody.
	Deaf bool
}

// Run calls wake whenever events may have been appended, until ctx ends: once after each connect, since
// what was sent before LISTEN is gone, and for each notification. It returns ctx's error only.
func (w Waker) Run(ctx context.Context, wake func()) error {
	wait := w.Backoff
	for {
		listened, err := w.listen(ctx, wake)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if w.Changed != nil {
			w.Changed(err)
		}
		if listened {
			wait = w.Backoff
		}
		wait = min(wait, w.BackoffCap)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		wait *= 2
	}
}

// listen holds one connection until it breaks. listened is whether it got as far as LISTEN.
func (w Waker) listen(ctx context.Context, wake func()) (listened bool, err error) {
	config, err := pgx.ParseConfig(w.URL)
	if err != nil {
		return false, unreadableURL(err)
	}
	config.RuntimeParams["application_name"] = WakeApplication
	if w.Deaf {
		config.RuntimeParams["application_name"] = PresenceApplication
	}
	starting, cancel := context.WithTimeout(ctx, w.keepAlive())
	defer cancel()
	conn, err := pgx.ConnectConfig(starting, config)
	if err != nil {
		return false, failed("connect to listen", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if w.Present != "" {
		if err := showPresence(starting, conn, w.Present); err != nil {
			return false, failed("show that an engine runs", err)
		}
	}
	if w.Deaf {
		return true, failed("show that an engine runs", w.wait(ctx, conn))
	}
	if _, err := conn.Exec(starting, `LISTEN `+channel); err != nil {
		return false, failed("listen", err)
	}
	if w.Changed != nil {
		w.Changed(nil)
	}
	// the first wake is the one after connecting: LISTEN first, then one look at everything
	wake()
	heard, err := w.prove(ctx, conn)
	if err != nil {
		return true, failed("wait for a notification", err)
	}
	if heard {
		wake()
	}
	for {
		if err := w.wait(ctx, conn); err != nil {
			return true, failed("wait for a notification", err)
		}
		if !heard {
			heard = true
			w.tell(true)
		}
		wake()
	}
}

// prove asks for a notification and waits for it, or for any other. heard is whether one came, or whether that
// was not asked for; an error is one of the connection.
func (w Waker) prove(ctx context.Context, conn *pgx.Conn) (heard bool, err error) {
	if w.Probe == nil {
		return true, nil
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(w.ProbeLimit, 5*time.Second))
	defer cancel()
	if err := w.Probe(limited); err != nil {
		return true, nil // nothing was sent, so silence would prove nothing
	}
	_, err = conn.WaitForNotification(limited)
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return false, err
	}
	w.tell(err == nil)
	return err == nil, nil
}

func (w Waker) tell(heard bool) {
	if w.Heard != nil {
		w.Heard(heard)
	}
}

func (w Waker) keepAlive() time.Duration {
	if w.KeepAlive <= 0 {
		return 30 * time.Second
	}
	return w.KeepAlive
}

// wait returns at the next notification. A connection that died without a word is found by asking it.
func (w Waker) wait(ctx context.Context, conn *pgx.Conn) error {
	for {
		silence, cancel := context.WithTimeout(ctx, w.keepAlive())
		_, err := conn.WaitForNotification(silence)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		proof, cancel := context.WithTimeout(ctx, w.keepAlive())
		err = conn.Ping(proof)
		cancel()
		if err != nil {
			return err
		}
	}
}

// Notify wakes whoever listens for events.
func (s *Store) Notify(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, `SELECT pg_catalog.pg_notify($1, '')`, channel)
	return failed("notify", err)
}

// Silence is a waker that never wakes: consumers only poll.
type Silence struct{}

// Run waits until ctx ends.
func (Silence) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}
