// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pace is how often viewers are told of changes at most.
	pace = time.Second
	// waitLimit is how long a viewer waits for a change before it is answered that there is none: shorter than the
	// limits of the server and of proxies on the way.
	waitLimit = 20 * time.Second
	// mostWaiting is how many viewers wait at once. Further ones are answered at once that there is no change, and
	// ask again.
	mostWaiting = 200
)

// watch numbers the facts as they change, and holds viewers until there is something new.
type watch struct {
	facts   func() Facts
	process string // sets the revisions of this process apart from those of another, behind one address
	changed atomic.Bool
	waiting atomic.Int64

	mu     sync.Mutex
	number int64
	turn   chan struct{} // closed when a newer number comes
	ended  bool

	write  sync.Mutex // held while facts are put together
	whole  []byte     // the facts of written, with the history
	newest []byte     // the same without it, for who has seen the number before
	wrote  int64
}

func newWatch(facts func() Facts) *watch {
	return &watch{facts: facts, process: rand.Text()[:8], number: 1, turn: make(chan struct{})}
}

// Changed takes note that the facts may have changed. It costs next to nothing, so a round may call it.
func (p *Page) Changed() { p.watch.changed.Store(true) }

// Run tells viewers of changes, once a second at most, until ctx ends; then those that wait are answered, so that
// nobody who looks holds up a stop.
func (p *Page) Run(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	defer p.watch.end()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if p.watch.changed.Swap(false) {
				p.watch.step()
			}
		}
	}
}

// step makes a new number.
func (w *watch) step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.number++
	close(w.turn)
	w.turn = make(chan struct{})
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended = true
		close(w.turn)
	}
}

func (w *watch) state() (number int64, turn chan struct{}, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.number, w.turn, w.ended
}

func (w *watch) revision(number int64) string { return w.process + "." + strconv.FormatInt(number, 10) }

// next is the facts when they are newer than a revision, or nil when nothing has changed for a while.
func (w *watch) next(ctx context.Context, after string) ([]byte, error) {
	number, turn, ended := w.state()
	if after == w.revision(number) {
		n := w.waiting.Add(1)
		defer w.waiting.Add(-1)
		if ended || n > mostWaiting {
			return nil, nil
		}
		limit := time.NewTimer(waitLimit)
		defer limit.Stop()
		select {
		case <-ctx.Done():
			return nil, nil // nobody reads the answer
		case <-limit.C:
			return nil, nil
		case <-turn:
		}
	}
	return w.text(after)
}

// text is the facts as they are sent, written once for every number.
func (w *watch) text(after string) ([]byte, error) {
	w.write.Lock()
	defer w.write.Unlock()
	number, _, _ := w.state()
	if w.wrote != number {
		f := w.facts()
		f.Revision = w.revision(number)
		whole, err := json.Marshal(f)
		if err != nil {
			return nil, fmt.Errorf("write the facts: %w", err)
		}
		f.History = nil
		newest, err := json.Marshal(f)
		if err != nil {
			return nil, fmt.Errorf("write the facts: %w", err)
		}
		w.whole, w.newest, w.wrote = whole, newest, number
	}
	if after == w.revision(number) || after == w.revision(number-1) {
		return w.newest, nil
	}
	return w.whole, nil
}
