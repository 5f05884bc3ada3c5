// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/riverqueue/river/riverdriver"
)

// insertTopic is what River's workers listen to for new jobs of their queues.
const insertTopic = "river_insert"

// notifyLimit bounds one notification; a worker that misses it finds the jobs at its next poll.
const notifyLimit = 5 * time.Second

// closeLimit bounds the notification that is sent when the engine stops.
const closeLimit = time.Second

// notifier tells River's workers of new jobs, after their round has committed. A NOTIFY inside the round
// would hold a lock of the whole server until the commit is on disk, so that rounds could no longer share
// a flush. Queues that get jobs while one notification is on its way share the next.
type notifier struct {
	driver riverdriver.Executor
	schema string

	mu     sync.Mutex
	queues map[string]bool
	signal chan struct{} // capacity one
	stop   context.CancelFunc
	ended  chan struct{}
}

func newNotifier(driver riverdriver.Executor, schema string) *notifier {
	ctx, stop := context.WithCancel(context.Background())
	n := &notifier{
		driver: driver, schema: schema, queues: map[string]bool{}, signal: make(chan struct{}, 1), stop: stop, ended: make(chan struct{}),
	}
	go n.run(ctx)
	return n
}

// mark says that a queue has new jobs. It never blocks.
func (n *notifier) mark(queue string) {
	n.mu.Lock()
	n.queues[queue] = true
	n.mu.Unlock()
	select {
	case n.signal <- struct{}{}:
	default:
	}
}

// take gives what is marked, as River's payloads.
func (n *notifier) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	payloads := make([]string, 0, len(n.queues))
	for queue := range n.queues {
		payload, err := json.Marshal(map[string]string{"queue": queue})
		if err == nil { // a text always encodes
			payloads = append(payloads, string(payload))
		}
	}
	clear(n.queues)
	return payloads
}

func (n *notifier) run(ctx context.Context) {
	defer close(n.ended)
	for {
		select {
		case <-ctx.Done():
			n.send(closeLimit) // of the last round before the stop
			return
		case <-n.signal:
			n.send(notifyLimit)
		}
	}
}

// send notifies of what is marked. A failure costs time and no job, so it is not told: if the database is
// gone, the next round says so.
func (n *notifier) send(limit time.Duration) {
	payloads := n.take()
	if len(payloads) == 0 {
		return
	}
	// not that of run: a stop must not lose what was taken
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = n.driver.NotifyMany(ctx, &riverdriver.NotifyManyParams{Payload: payloads, Schema: n.schema, Topic: insertTopic})
}

// close sends what is marked and ends the goroutine.
func (n *notifier) close() {
	n.stop()
	<-n.ended
}
