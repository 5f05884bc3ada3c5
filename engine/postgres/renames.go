// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Doubt says that new consumers may be old ones under other names. Let in as new, they would begin at the head of
// the log and never see what waits for the old ones; so a person decides.
type Doubt struct {
	New     []string // declared, and not known to the database
	Orphans []Orphan // never empty
}

// Orphan is a cursor whose consumer is not declared.
type Orphan struct {
	Name string
	Lag  int64 // how many events it has still to see
}

// String says what is in doubt, without a full stop.
func (d Doubt) String() string {
	waiting := make([]string, len(d.Orphans))
	for i, o := range d.Orphans {
		waiting[i] = fmt.Sprintf("%q, %s behind", o.Name, events(o.Lag))
	}
	return fmt.Sprintf("the database does not know the %s %s, and has the %s of %s, which the file does not declare",
		plural(len(d.New), "consumer"), quotedNames(d.New), plural(len(d.Orphans), "cursor"), strings.Join(waiting, " and "))
}

// Fix says how a person decides.
func (d Doubt) Fix() string {
	if len(d.New) == 1 && len(d.Orphans) == 1 {
		return fmt.Sprintf("if %q is %q under a new name, run `engine consumers rename %s %s`, and it goes on where the old one stands; if it is another consumer, run `engine migrate up --new-consumers`, and it begins at the head",
			d.New[0], d.Orphans[0].Name, d.Orphans[0].Name, d.New[0])
	}
	return "for each new consumer that is an old one under a new name, run `engine consumers rename OLD NEW`, and it goes on where the old one stands; then, for the rest, run `engine migrate up --new-consumers`, and they begin at the head"
}

func quotedNames(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(quoted, ", ")
}

// Doubt is what stands in the way of names that a migration would add, or nil.
func (s Status) Doubt() *Doubt {
	var d Doubt
	for _, n := range s.Names {
		switch {
		case n.Declared && !n.Known:
			d.New = append(d.New, n.Name)
		case n.Cursor && !n.Declared:
			d.Orphans = append(d.Orphans, Orphan{n.Name, s.Lag(n)})
		}
	}
	return d.orNil()
}

func (c Cursors) doubt(declared []string) *Doubt {
	d := Doubt{New: newNames(c.Known, declared)}
	for name := range c.Rows {
		if !slices.Contains(declared, name) {
			d.Orphans = append(d.Orphans, Orphan{name, c.Lag(name)})
		}
	}
	slices.SortFunc(d.Orphans, func(a, b Orphan) int { return strings.Compare(a.Name, b.Name) })
	return d.orNil()
}

func (d Doubt) orNil() *Doubt {
	if len(d.New) == 0 || len(d.Orphans) == 0 {
		return nil
	}
	return &d
}

// doubt looks for one as the owner, who may read every cursor.
func (m *migrator) doubt(ctx context.Context) (doubt *Doubt, err error) {
	err = m.asOwner(ctx, "look for cursors without a consumer", func(tx pgx.Tx) error {
		state, err := readCursors(ctx, tx, m.o.Schema)
		doubt = state.doubt(m.o.ConsumerNames)
		return err
	})
	return doubt, err
}
