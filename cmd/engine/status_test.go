// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// look is a status with one consumer.
func look(lag int64, waited float64, late bool, end string) status {
	c := statusConsumer{Name: "push", Declared: true, Head: 9, Cursor: new(9 - lag), Lag: new(lag), PendingSeconds: new(waited), AlertAfterSeconds: new(60.0), Late: late, End: &end}
	return status{Head: 9, Consumers: []statusConsumer{c}}
}

// Where looks stand one below the other, an age that only grows is no news.
func TestScreenPrintsChanges(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newScreen(&out, false, false)
	for _, l := range []status{look(2, 10, false, "failed"), look(2, 11, false, "failed"), look(2, 61, true, "failed"), look(2, 62, true, "failed"), look(0, 0, false, "idle")} {
		if err := s.show(l); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "push") {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
	}
	want := "push 7 9 2 10s 1m0s failed|push 7 9 2 1m1s late 1m0s failed|push 9 9 0 - 1m0s idle"
	if strings.Join(got, "|") != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// On a terminal each look is drawn over the one before, and what was longer is cleared.
func TestScreenDrawsInPlace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newScreen(&out, false, true)
	for _, l := range []status{look(2, 10, false, "failed"), look(2, 11, false, "failed")} {
		if err := s.show(l); err != nil {
			t.Fatal(err)
		}
	}
	text := out.String()
	if strings.Count(text, clearAll) != 1 || strings.Count(text, cursorHome) != 2 || strings.Count(text, clearRest) != 2 || !strings.Contains(text, "11s") {
		t.Errorf("drawn %q, want one clearing, and two looks from the top", text)
	}
}

// An interrupt ends watching well; an error of a look does not.
func TestWatching(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	err := watching(ctx, time.Millisecond, func() error {
		if looks++; looks == 3 {
			cancel()
			return ctx.Err()
		}
		return nil
	})
	if err != nil || looks != 3 {
		t.Errorf("watching = %v after %d looks, want nil after 3", err, looks)
	}
	broken := errors.New("broken")
	if err := watching(t.Context(), time.Hour, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("watching = %v, want the error of the look", err)
	}
}
