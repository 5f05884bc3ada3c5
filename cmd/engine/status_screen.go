// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// screen prints looks one after the other.
type screen struct {
	to      io.Writer
	json    bool
	inPlace bool // redraw
	last    string
}

func newScreen(to io.Writer, asJSON, inPlace bool) *screen {
	return &screen{to: to, json: asJSON, inPlace: inPlace && !asJSON}
}

// Home, and clear from there to the end: what is drawn over does not flicker.
const (
	cursorHome = "\x1b[H"
	clearLine  = "\x1b[K\n"
	clearRest  = "\x1b[J"
	clearAll   = "\x1b[2J"
)

// show prints a look. Printed one below the other, a look that says the same as the one before is left out: an age
// that grows is no news, the age that becomes late is.
func (s *screen) show(look status) error {
	if s.json {
		encoder := json.NewEncoder(s.to)
		return encoder.Encode(look)
	}
	var text bytes.Buffer
	if err := look.write(&text, true); err != nil {
		return err
	}
	if s.inPlace {
		drawn := append([]byte(cursorHome), bytes.ReplaceAll(text.Bytes(), []byte("\n"), []byte(clearLine))...)
		if s.last == "" {
			drawn = append([]byte(clearAll), drawn...)
			s.last = "drawn"
		}
		_, err := s.to.Write(append(drawn, clearRest...))
		return err
	}
	var said bytes.Buffer
	if err := look.write(&said, false); err != nil {
		return err
	}
	if said.String() == s.last {
		return nil
	}
	if s.last != "" {
		fmt.Fprintln(s.to)
	}
	s.last = said.String()
	_, err := s.to.Write(text.Bytes())
	return err
}

// write prints a look for people. Without ages it says only what is news when it changes.
func (s status) write(to io.Writer, ages bool) error {
	fmt.Fprintf(to, "log        head %d, %d partitions, room for %d more events\n", s.Head, s.Partitions.Count, s.Partitions.Headroom)
	fmt.Fprintf(to, "identity   %s\nepoch      %s\n\n", s.Identity.words(), s.Identity.Epoch)
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONSUMER\tCURSOR\tHEAD\tLAG\tPENDING\tLATE AFTER\tEND")
	for _, c := range s.Consumers {
		mark, cursor, lag, after, end := "", "-", "-", "-", "-"
		if !c.Declared {
			mark = "*"
		}
		pending := "no cursor yet"
		if c.Cursor != nil {
			cursor, lag, pending = strconv.FormatInt(*c.Cursor, 10), strconv.FormatInt(*c.Lag, 10), "-"
			if *c.Lag > 0 {
				pending = "waits"
				if ages {
					pending = seconds(*c.PendingSeconds).String()
				}
			}
		}
		if c.Late {
			pending += " late"
		}
		if c.AlertAfterSeconds != nil {
			after = seconds(*c.AlertAfterSeconds).String()
		}
		if c.End != nil {
			end = *c.End
		}
		if c.Quarantined != nil && *c.Quarantined > 0 {
			end += fmt.Sprintf(", %d set aside", *c.Quarantined)
		}
		fmt.Fprintf(table, "%s%s\t%s\t%d\t%s\t%s\t%s\t%s\n", c.Name, mark, cursor, c.Head, lag, pending, after, end)
	}
	return table.Flush()
}

func seconds(n float64) time.Duration {
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond)
}
