// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
)

// Skip is what moving a consumer over a hole does, or would do.
type Skip struct {
	Change

	Next int64 // the next number that the log holds; 0 when it holds none above
}

// SkipConsumer moves the cursor of a consumer over a hole of the log: the numbers first to last, which no round
// passes by itself. It is refused unless the cursor stands right before them, the log holds none of them, and
// all of them were given out. It connects as database.admin_url.
func SkipConsumer(ctx context.Context, cfg *config.Config, name string, first, last int64, reason string, o ChangeOptions) (Skip, error) {
	switch {
	case first < 1 || last < first:
		return Skip{}, fmt.Errorf("the numbers %d to %d are no range: the numbers of events begin at 1, and the first is not above the last", first, last)
	case reason == "":
		return Skip{}, errors.New("a hole is skipped for a reason: give one, it is kept in the audit")
	}
	var skip Skip
	change, err := changeCursor(ctx, cfg, o, postgres.CursorChange{Name: name, First: first, Last: last, Decide: func(c postgres.Cursors) (postgres.CursorStep, error) {
		skip.Next = c.Asked.Next
		return decideSkip(c, name, first, last, reason)
	}})
	skip.Change = change
	return skip, err
}

func decideSkip(c postgres.Cursors, name string, first, last int64, reason string) (postgres.CursorStep, error) {
	at, has := c.Rows[name]
	deed := postgres.LastDeed(c.Deeds, name)
	log := c.Asked
	refuse := func(format string, args ...any) (postgres.CursorStep, error) {
		return postgres.CursorStep{}, fmt.Errorf("consumer %q cannot skip %d to %d: %s", name, first, last, fmt.Sprintf(format, args...))
	}
	switch {
	case !has:
		return postgres.CursorStep{}, noCursor(c, nil, name, deed)
	case deed.Action == postgres.ConsumerSkipped && deed.Details.First == first && deed.Details.Last == last:
		return postgres.CursorStep{Note: fmt.Sprintf("nothing to do: consumer %q %s", name, deed)}, nil
	case last > c.Head:
		return refuse("the head is %d, so event %d is not missing: it has not happened yet", c.Head, max(first, c.Head+1))
	case at != first-1:
		return refuse("its cursor is at %d, so a hole that it stands before begins at %d", at, at+1)
	case log.Held > 0:
		return refuse("the log holds %d events of this range: they would get no jobs; give the range of the hole alone", log.Held)
	case log.Floor > last:
		return refuse("retention removed them, since the log begins at %d: the next round passes them by itself and tells of the loss", log.Floor)
	}
	return postgres.CursorStep{
		Action:  postgres.ConsumerSkipped,
		Details: postgres.DeedDetails{LastSeq: &at, Head: &c.Head, First: first, Last: last, Reason: reason},
	}, nil
}
