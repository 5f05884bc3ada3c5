// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/cloudevents"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const sampleFile = "sample/events.jsonl"

// The committed sample is what the generator below writes.
func TestSampleIsGenerated(t *testing.T) {
	t.Parallel()
	got := generateSample(t)
	if *update {
		if err := os.WriteFile(sampleFile, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs from its generator; go test ./cmd/engine -run Sample -update mends it (-file +generator):\n%s", sampleFile, diff)
	}
}

// The sample reads without a problem and is what the shipped consumers.yaml and its help speak of.
func TestSampleIsBelievable(t *testing.T) {
	t.Parallel()
	reader := cloudevents.NewReader(sampleFile, bytes.NewReader(sampleEvents))
	seen, orders := map[string]int{}, map[string]string{}
	after := map[string][]string{"order.placed": {""}, "order.paid": {"order.placed"}, "order.shipped": {"order.paid"}, "order.cancelled": {"order.placed", "order.paid"}}
	ids := map[string]bool{}
	var last time.Time
	for {
		e, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Type]++
		if e.Time.Before(last) || ids[e.ID] || e.ResourceID == "" || len(e.Audience) == 0 {
			t.Errorf("line %d: got %+v, want a later time, a new id, a subject and an audience", e.Line, e)
		}
		if source, _, _ := strings.Cut(e.Type, "."); source != e.Resource {
			t.Errorf("line %d: got type %s and source %s, want them of one family", e.Line, e.Type, e.Resource)
		}
		if before, isOrder := after[e.Type]; isOrder {
			if !slices.Contains(before, orders[e.ResourceID]) {
				t.Errorf("line %d: got %s after %q for %s, want it after one of %q", e.Line, e.Type, orders[e.ResourceID], e.ResourceID, before)
			}
			orders[e.ResourceID] = e.Type
		}
		last, ids[e.ID] = e.Time, true
	}
	types := []string{"message.created", "message.read", "order.cancelled", "order.paid", "order.placed", "order.shipped", "user.registered"}
	for _, name := range types {
		if seen[name] < 5 {
			t.Errorf("got %d events of type %s, want at least 5", seen[name], name)
		}
	}
	if len(seen) != len(types) || len(ids) < 200 || len(ids) > 600 {
		t.Errorf("got %d events of the types %v, want 200 to 600 of %v", len(ids), seen, types)
	}
	if len(reader.Unmapped()) > 0 {
		t.Errorf("got attributes without a column: %v, want none", reader.Unmapped())
	}
	if addresses := regexp.MustCompile(`[a-z]+@[a-z.]+`).FindAllString(string(sampleEvents), -1); len(addresses) == 0 || slices.ContainsFunc(addresses, func(a string) bool { return !strings.HasSuffix(a, "@example.com") }) {
		t.Errorf("got the mail addresses %v, want some, all of example.com", addresses)
	}
}

// shop is the state that the generator moves.
type shop struct {
	t        *testing.T
	out      bytes.Buffer
	dice     *rand.Rand
	now      time.Time
	count    int
	people   []string   // registered
	orders   []*order   // open
	messages [][]string // unread: the message, then who has not read it
	placed   int
	written  int
}

type order struct {
	id, buyer, clerk, total string
	paid                    bool
}

// generateSample writes the same events each time: PCG is a fixed algorithm.
func generateSample(t *testing.T) []byte {
	t.Helper()
	s := &shop{t: t, dice: rand.New(rand.NewPCG(2026, 3)), now: time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)}
	newcomers := []string{"alex", "sam", "robin", "kim", "noor", "jules", "mika", "toni", "charlie", "yuki", "eli", "remi"}
	for range 3 {
		s.register(&newcomers)
	}
	s.place() // so that messages have an order to speak of
	for s.count < 320 {
		switch n := s.dice.IntN(100); {
		case n < 6 && len(newcomers) > 0:
			s.register(&newcomers)
		case n < 30:
			s.place()
		case n < 70 && len(s.orders) > 0:
			s.move(s.dice.IntN(len(s.orders)))
		case n < 88 || len(s.messages) == 0:
			s.write()
		default:
			s.read(s.dice.IntN(len(s.messages)))
		}
	}
	return s.out.Bytes()
}

func (s *shop) emit(kind, subject string, audience []string, data any) {
	s.t.Helper()
	s.count++
	s.now = s.now.Add(time.Duration(20+s.dice.IntN(600)) * time.Second)
	source, _, _ := strings.Cut(kind, ".")
	line, err := json.Marshal(struct {
		SpecVersion     string    `json:"specversion"`
		ID              string    `json:"id"`
		Source          string    `json:"source"`
		Type            string    `json:"type"`
		Subject         string    `json:"subject"`
		Time            time.Time `json:"time"`
		DataContentType string    `json:"datacontenttype"`
		Audience        string    `json:"audience"`
		Data            any       `json:"data"`
	}{"1.0", fmt.Sprintf("evt-%05d", s.count), source, kind, subject, s.now, "application/json", strings.Join(audience, ","), data})
	if err != nil {
		s.t.Fatal(err)
	}
	s.out.Write(append(line, '\n'))
}

func (s *shop) register(newcomers *[]string) {
	name := (*newcomers)[0]
	*newcomers = (*newcomers)[1:]
	s.people = append(s.people, name)
	s.emit("user.registered", "usr-"+name, []string{name}, struct {
		Name  string `json:"name"`
		Email string `json:"email"`
	}{strings.ToUpper(name[:1]) + name[1:], name + "@example.com"})
}

// others are n people, in the order of their registration, without the given one.
func (s *shop) others(without string, n int) []string {
	people := slices.DeleteFunc(slices.Clone(s.people), func(p string) bool { return p == without })
	for len(people) > n {
		at := s.dice.IntN(len(people))
		people = slices.Delete(people, at, at+1)
	}
	return people
}

func (s *shop) place() {
	type item struct {
		SKU      string `json:"sku"`
		Quantity int    `json:"quantity"`
	}
	buyer := s.people[s.dice.IntN(len(s.people))]
	skus := []string{"mug-blue", "mug-green", "tea-assam", "tea-mint", "teapot-iron", "kettle-1l", "honey-250g"}
	cents, items := 0, make([]item, 1+s.dice.IntN(3))
	for i := range items {
		items[i] = item{skus[s.dice.IntN(len(skus))], 1 + s.dice.IntN(4)}
		cents += items[i].Quantity * (390 + 10*s.dice.IntN(300))
	}
	s.placed++
	o := &order{id: fmt.Sprintf("ord-%d", 1000+s.placed), buyer: buyer, clerk: s.others(buyer, 1)[0], total: fmt.Sprintf("%d.%02d", cents/100, cents%100)}
	s.orders = append(s.orders, o)
	s.emit("order.placed", o.id, []string{o.buyer, o.clerk}, struct {
		Buyer    string `json:"buyer"`
		Total    string `json:"total"`
		Currency string `json:"currency"`
		Items    []item `json:"items"`
	}{o.buyer, o.total, "EUR", items})
}

// move takes an order one step further: placed to paid, paid to shipped, now and then to cancelled.
func (s *shop) move(at int) {
	o := s.orders[at]
	switch n := s.dice.IntN(100); {
	case n < 14:
		reasons := []string{"changed their mind", "out of stock", "ordered twice", "payment expired"}
		s.emit("order.cancelled", o.id, []string{o.buyer, o.clerk}, map[string]any{"reason": reasons[s.dice.IntN(len(reasons))], "refund": o.paid})
	case !o.paid:
		o.paid = true
		s.emit("order.paid", o.id, []string{o.buyer}, map[string]string{"total": o.total, "currency": "EUR", "method": []string{"card", "transfer", "invoice"}[s.dice.IntN(3)]})
		return
	default:
		s.emit("order.shipped", o.id, []string{o.buyer}, map[string]any{"carrier": []string{"post", "courier", "bicycle"}[s.dice.IntN(3)], "parcels": 1 + s.dice.IntN(2)})
	}
	s.orders = slices.Delete(s.orders, at, at+1)
}

func (s *shop) write() {
	from := s.people[s.dice.IntN(len(s.people))]
	to := s.others(from, 1+s.dice.IntN(2))
	about := fmt.Sprintf("ord-%d", 1001+s.dice.IntN(max(s.placed, 1)))
	texts := []string{
		"@" + to[0] + " can you look at " + about + "?",
		"thanks, " + about + " is on its way",
		"@" + to[len(to)-1] + " the label of " + about + " is missing",
		"lunch at noon?",
		"the tea arrived, well packed",
		"@" + to[0] + " who packs " + about + " today?",
	}
	s.written++
	id := fmt.Sprintf("msg-%d", 2000+s.written)
	s.messages = append(s.messages, append([]string{id}, to...))
	s.emit("message.created", id, to, map[string]string{"from": from, "text": texts[s.dice.IntN(len(texts))]})
}

func (s *shop) read(at int) {
	m := s.messages[at]
	s.emit("message.read", m[0], m[1:2], map[string]string{"by": m[1]})
	if m = slices.Delete(m, 1, 2); len(m) > 1 {
		s.messages[at] = m
	} else {
		s.messages = slices.Delete(s.messages, at, at+1)
	}
}
