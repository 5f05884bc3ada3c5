// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Wrong tokens make their address wait, longer each time; the right one is not even looked at meanwhile, and
// nobody else waits.
func TestWrongTokensSlowDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, nil)
		const wrong, other = "Authorization: Bearer wrong", "From: 192.0.2.9:1000"
		try := func(headers ...string) string {
			r := ask(t, p, "GET", "/status/facts", headers...)
			return fmt.Sprint(r.status, " ", r.header.Get("Retry-After"))
		}
		for n, want := range []string{"401 ", "401 ", "401 ", "429 1"} {
			if got := try(wrong); got != want {
				t.Errorf("try %d: %q, want %q", n+1, got, want)
			}
		}
		if got := try(bearer); got != "429 1" {
			t.Errorf("the right token in the pause: %q, want 429 1", got)
		}
		if got := try(bearer, other); got != "200 " {
			t.Errorf("somebody else: %q, want 200", got)
		}
		for n, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
			pause := time.Duration(seconds) * time.Second
			<-time.After(pause - time.Millisecond)
			if got := try(wrong); got != "429 1" {
				t.Errorf("pause %d, a moment too early: %q, want 429 1", n+1, got)
			}
			<-time.After(time.Millisecond)
			if got := try(wrong); got != "401 " {
				t.Errorf("after pause %d of %v: %q, want 401", n+1, pause, got)
			}
		}
		<-time.After(30 * time.Second)
		if got := try(bearer); got != "200 " {
			t.Errorf("the right token after the pause: %q, want 200", got)
		}
		if got := try(wrong); got != "401 " {
			t.Errorf("a wrong token after the right one: %q, want 401", got)
		}
		if got := try(bearer); got != "200 " {
			t.Errorf("the right one made the count begin anew: %q, want 200", got)
		}
	})
}

// Requests without any token are no guesses: a page that was just opened sends one.
func TestNoTokenIsNoGuess(t *testing.T) {
	t.Parallel()
	p := newPage(t, nil)
	for range 20 {
		if r := ask(t, p, "GET", "/status/facts"); r.status != 401 {
			t.Fatalf("without a token: %d, want 401", r.status)
		}
	}
}

// One customer's network counts as one, and however many addresses guess, the memory stays bounded and those beyond
// share one count.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, nil)
		const wrong = "Authorization: Bearer wrong"
		last := 0
		for n := range 4 {
			last = ask(t, p, "GET", "/status/facts", wrong, fmt.Sprintf("From: [2001:db8::%d]:1", n+1)).status
		}
		if last != 429 {
			t.Errorf("the fourth guess of one network: %d, want 429", last)
		}
		refused := 0
		for n := range 1500 {
			if ask(t, p, "GET", "/status/facts", wrong, fmt.Sprintf("From: 10.1.%d.%d:1", n/250, n%250)).status == 429 {
				refused++
			}
		}
		if want := 1500 - 1023 - 3; refused != want {
			t.Errorf("of 1500 addresses with one guess each %d are refused, want the %d beyond the limit and three guesses", refused, want)
		}
		<-time.After(11 * time.Minute)
		if r := ask(t, p, "GET", "/status/facts", wrong, "From: 10.9.9.9:1"); r.status != 401 {
			t.Errorf("later: %d, want 401, with the others forgotten", r.status)
		}
	})
}
