// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/bothy/engine/statuspage"
)

func local(o *statuspage.Options) { o.Access, o.Token = statuspage.Local, "" }

// running runs the page until the test ends or the returned function is called.
func running(t *testing.T, p *statuspage.Page) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var ran sync.WaitGroup
	ran.Go(func() { p.Run(ctx) })
	stop = func() { cancel(); ran.Wait() }
	t.Cleanup(stop)
	return stop
}

// Who has the newest facts waits for newer ones, and is told within a second. The history is sent once.
func TestViewersAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, local)
		running(t, p)
		p.Observed(time.Now(), map[string]float64{"push": 1.5})
		first := readFacts(t, ask(t, p, "GET", "/status/facts"))
		if first.History == nil || len(first.History.Pending["push"]) != 1 || *first.History.Pending["push"][0] != 1.5 {
			t.Errorf("the first facts have the history %+v, want one look", first.History)
		}
		next := readFacts(t, ask(t, p, "GET", "/status/facts?after="+first.Revision)) // what was observed is told now
		began := time.Now()
		go func() {
			<-time.After(3500 * time.Millisecond)
			p.Changed()
			p.Changed()
		}()
		newer := readFacts(t, ask(t, p, "GET", "/status/facts?after="+next.Revision))
		if took := time.Since(began); took < 3500*time.Millisecond || took > 4500*time.Millisecond {
			t.Errorf("told after %v of a change after 3.5s", took)
		}
		if newer.Revision == next.Revision || newer.History != nil {
			t.Errorf("told revision %s after %s, with history %v", newer.Revision, next.Revision, newer.History)
		}
		if old := readFacts(t, ask(t, p, "GET", "/status/facts?after="+first.Revision)); old.History == nil {
			t.Error("who missed a revision is sent no history")
		}
		if strange := readFacts(t, ask(t, p, "GET", "/status/facts?after=another.9")); strange.History == nil {
			t.Error("who comes from another process is sent no history")
		}
		began = time.Now()
		quiet := ask(t, p, "GET", "/status/facts?after="+newer.Revision)
		if took := time.Since(began); quiet.status != http.StatusNoContent || took != 20*time.Second {
			t.Errorf("without a change: %d after %v, want 204 after 20s", quiet.status, took)
		}
	})
}

// However many look, the facts are put together once for every change, and a stop holds nobody.
func TestManyViewersCostOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := newPage(t, func(o *statuspage.Options) {
			local(o)
			facts := o.Facts
			o.Facts = func() statuspage.Facts { asked++; return facts() }
		})
		stop := running(t, p)
		revision := readFacts(t, ask(t, p, "GET", "/status/facts")).Revision
		const viewers = 150
		answers := make(chan int, 2*viewers)
		look := func(after string) {
			for range viewers {
				go func() { answers <- ask(t, p, "GET", "/status/facts?after="+after).status }()
			}
		}
		look(revision)
		synctest.Wait()
		p.Changed()
		for range viewers {
			if status := <-answers; status != http.StatusOK {
				t.Errorf("a viewer is answered %d, want 200", status)
			}
		}
		if asked != 2 {
			t.Errorf("facts were put together %d times for %d viewers, want twice: for the first look and the change", asked, viewers)
		}
		look(readFacts(t, ask(t, p, "GET", "/status/facts")).Revision)
		synctest.Wait()
		began := time.Now()
		stop()
		for range viewers {
			<-answers
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("viewers held up the stop for %v", took)
		}
		if after := ask(t, p, "GET", "/status/facts?after="+readFacts(t, ask(t, p, "GET", "/status/facts")).Revision); after.status != http.StatusNoContent || time.Since(began) != 0 {
			t.Errorf("after the stop: %d after %v, want 204 at once", after.status, time.Since(began))
		}
	})
}

// Viewers beyond the limit are answered at once, so that they take no memory while they wait.
func TestWaitingViewersAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, local)
		running(t, p)
		revision := readFacts(t, ask(t, p, "GET", "/status/facts")).Revision
		const viewers = 250
		answers := make(chan time.Duration, viewers)
		began := time.Now()
		for range viewers {
			go func() {
				ask(t, p, "GET", "/status/facts?after="+revision)
				answers <- time.Since(began)
			}()
		}
		at := map[time.Duration]int{}
		for range viewers {
			at[<-answers]++
		}
		if at[0] != 50 || at[20*time.Second] != 200 {
			t.Errorf("answered %v, want 50 at once and 200 after 20s", at)
		}
	})
}

// The history is bounded, and looks that fail leave gaps without pushing out what was seen.
func TestHistory(t *testing.T) {
	t.Parallel()
	p := newPage(t, local)
	at := time.Unix(1_000_000, 0)
	p.Observed(at, nil)
	for n := range 200 {
		at = at.Add(5 * time.Second)
		p.Observed(at, map[string]float64{"push": float64(n), "late-comer": 1})
	}
	for range 11 { // one second apart, of which two are kept
		at = at.Add(time.Second)
		p.Observed(at, nil)
	}
	p.Observed(at.Add(time.Second), map[string]float64{"push": 7})
	h := readFacts(t, ask(t, p, "GET", "/status/facts")).History
	push := h.Pending["push"]
	if len(h.At) != 120 || len(push) != 120 || len(h.Pending["late-comer"]) != 120 {
		t.Fatalf("%d looks, %d ages, %d of the other; want 120 of each", len(h.At), len(push), len(h.Pending["late-comer"]))
	}
	var end []string
	for _, age := range push[116:] {
		word := "null"
		if age != nil {
			word = fmt.Sprint(*age)
		}
		end = append(end, word)
	}
	if got := fmt.Sprint(end); got != "[199 null null 7]" {
		t.Errorf("the last ages are %s, want the last that was seen, two gaps, and the newest", got)
	}
	if h.Pending["late-comer"][119] != nil {
		t.Error("a consumer that is gone has an age")
	}
}
