// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// laneKey finds the lane in the context of its round.
type laneKey struct{}

// watcher learns which backend a lane uses.
type watcher struct{ f *follower }

func (watcher) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (watcher) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (w watcher) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if l, ok := ctx.Value(laneKey{}).(*lane); ok {
		w.f.pids[l] = conn.PgConn().PID()
	}
	return ctx
}
func (watcher) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (watcher) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// handle is the handler owner, which misbehaves as the schedule says.
func (f *follower) handle(ctx context.Context, tx *postgres.HandlerTx, e round.Event) ([]string, error) {
	l, _ := ctx.Value(laneKey{}).(*lane)
	if f.w.poisons(l.consumer, e) && *ctx.Value(wrongKey{}).(*string) == "" { //nolint:forcetypeassert // it is always there
		_, err := tx.Exec(ctx, `SELECT 1 / 0`)
		return nil, err
	}
	wrong, _ := ctx.Value(wrongKey{}).(*string)
	var sql []string
	switch *wrong {
	case handlerCommits:
		sql = []string{`COMMIT`}
	case handlerBeginsAgain:
		sql = []string{`COMMIT`, `BEGIN`}
	case handlerSwallows:
		sql = []string{`SELECT 1/0`}
	}
	*wrong = ""
	for _, statement := range sql {
		_, _ = tx.Exec(ctx, statement)
	}
	return l.consumer.rule(e), nil
}

// wrongKey finds how the next call of the handler misbehaves.
type wrongKey struct{}

// twin is the store of a lane: the model and the real one, each step on both, one after the other. Between
// two steps the schedule may do something else.
type twin struct {
	l *lane
	f *follower
}

func (w twin) Ensure(context.Context, []string) error { return nil }

func (w twin) Round(ctx context.Context, c round.Consumer, run func(context.Context, consumer.Tx) bool) error {
	var modelErr error
	realErr := w.f.store.Round(context.WithValue(ctx, laneKey{}, w.l), c, func(ctx context.Context, actual *postgres.Tx) bool {
		commit := false
		modelErr = store{w.l}.Round(ctx, c, func(ctx context.Context, model consumer.Tx) bool {
			commit = run(ctx, twinTx{w, model, actual})
			w.l.wait(forReply)
			return commit
		})
		return commit && !w.l.dead
	})
	if w.l.dead {
		return errKilled
	}
	w.same("the end of the transaction", modelErr, realErr)
	return modelErr
}

// same compares whether something went well, and in the same way.
func (w twin) same(what string, model, actual error) bool {
	if (model == nil) != (actual == nil) {
		w.f.report(w.l.name, "%s: the server says %v, the model %v", what, actual, model)
	}
	var code *serverError
	if errors.As(model, &code) && actual != nil && !strings.Contains(actual.Error(), code.code) {
		w.f.report(w.l.name, "%s: the server says %v, the model %v", what, actual, model)
	}
	return model == nil && actual == nil
}

// twinTx is one transaction on both.
type twinTx struct {
	twin
	model consumer.Tx
	real  *postgres.Tx
}

func (tx twinTx) Lock(ctx context.Context) (round.Lock, int64, error) {
	if tx.l.dead {
		return "", 0, errKilled
	}
	lock, cursor, err := tx.model.Lock(ctx)
	realLock, realCursor, realErr := tx.real.Lock(ctx)
	if tx.same("Lock", err, realErr) && (lock != realLock || cursor != realCursor) {
		tx.f.report(tx.l.name, "Lock: the server says %s at %d, the model %s at %d", realLock, realCursor, lock, cursor)
	}
	tx.l.wait(forReply)
	return lock, cursor, err
}

func (tx twinTx) Read(ctx context.Context) (round.Snapshot, error) {
	if tx.l.dead {
		return round.Snapshot{}, errKilled
	}
	snapshot, err := tx.model.Read(ctx)
	actual, realErr := tx.real.Read(ctx)
	if got, want := snapshotWords(actual), snapshotWords(snapshot); tx.same("Read", err, realErr) && got != want {
		tx.f.report(tx.l.name, "Read: the server says %s, the model %s", got, want)
	}
	tx.l.wait(forReply)
	return snapshot, err
}

func snapshotWords(s round.Snapshot) string {
	text := fmt.Sprintf("%s: cursor %d, head %d, floor %d, rows", s.Reading(), s.Cursor, s.Head, s.Floor)
	for _, e := range s.Events {
		text += fmt.Sprintf(" %d", e.Seq)
	}
	return text
}

func (tx twinTx) Recipients(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error) {
	if tx.l.dead {
		return round.Decision{}, errKilled
	}
	wrong := tx.l.wrong
	decision, err := tx.model.Recipients(ctx, events, limit, through)
	actual, realErr := tx.real.Recipients(context.WithValue(ctx, wrongKey{}, &wrong), events, limit, through)
	if got, want := fmt.Sprint(actual), fmt.Sprint(decision); tx.same("Recipients", err, realErr) && got != want {
		tx.f.report(tx.l.name, "Recipients: the server says %s, the model %s", got, want)
	}
	tx.l.wait(forReply)
	return decision, err
}

func (tx twinTx) Insert(ctx context.Context, targets []round.Target) error {
	if tx.l.dead {
		return errKilled
	}
	err := tx.model.Insert(ctx, targets)
	// up to 30 jobs the real one sends with the commit, and the model up to 2: an error of a connection that
	// is gone comes then
	if realErr := tx.real.Insert(ctx, targets); !errors.Is(err, errLost) {
		tx.same("Insert", err, realErr)
	}
	tx.l.wait(forReply)
	return err
}

func (tx twinTx) Quarantine(r round.Refusal) {
	tx.model.Quarantine(r)
	tx.real.Quarantine(r)
}

func (tx twinTx) Advance(from, to int64) {
	tx.model.Advance(from, to)
	tx.real.Advance(from, to)
}
