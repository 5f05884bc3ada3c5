// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"example.com/bothy/engine/round"
)

// ManifestVersion is the version of the format that this binary writes and reads.
const ManifestVersion = 1

// MaxManifest is the largest manifest that is read, in bytes.
const MaxManifest = 64 << 10

// Manifest says where a database stood when its last backup was taken. A copy that stands at the same place has
// lost nothing.
type Manifest struct {
	Version          int       `json:"manifest_version"`
	TakenAt          time.Time `json:"taken_at"` // the clock of the database
	Environment      string    `json:"environment"`
	SystemIdentifier int64     `json:"system_identifier,string"` // a text: it does not fit into the numbers of every JSON reader
	TimelineID       int64     `json:"timeline_id"`
	SyncEpoch        string    `json:"sync_epoch"`
	HeadSeq          int64     `json:"head_seq"`
	HeadEvent        string    `json:"head_event"` // the id of the event with that number; empty when the log does not hold it
	AuditSeq         int64     `json:"audit_seq"`
	AuditHash        string    `json:"audit_hash"` // hexadecimal; empty while the rows have none
}

// ManifestOf describes a database as it stands.
func ManifestOf(s State, at time.Time) Manifest {
	return Manifest{
		Version: ManifestVersion, TakenAt: at.UTC().Truncate(time.Microsecond), Environment: s.Environment,
		SystemIdentifier: s.Current.System, TimelineID: s.Current.Timeline,
		SyncEpoch: s.Epoch, HeadSeq: s.Head(), HeadEvent: s.HeadEvent, AuditSeq: s.Audit.Seq, AuditHash: hex.EncodeToString(s.Audit.Hash),
	}
}

// Text is the manifest as a file holds it, with a line end.
func (m Manifest) Text() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return append(text, '\n'), nil
}

// ParseManifest reads what Text wrote, and nothing else: a key too many, too few or twice is an error, since a
// value that is read as something else would let a database pass that lost events.
func ParseManifest(text []byte) (Manifest, error) {
	var m Manifest
	if len(text) > MaxManifest {
		return m, fmt.Errorf("the manifest is larger than %d bytes, and no manifest is", MaxManifest)
	}
	if err := checkKeys(text); err != nil {
		return m, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("the manifest is not one that `engine restore manifest` wrote: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Manifest{}, errors.New("the manifest is followed by something else: give the file as `engine restore manifest` wrote it")
	}
	return m, m.check()
}

// manifestKeys are the keys of the format.
var manifestKeys = []string{
	"manifest_version", "taken_at", "environment", "system_identifier", "timeline_id", "sync_epoch", "head_seq", "head_event", "audit_seq", "audit_hash",
}

// checkKeys wants every key exactly once and spelled exactly so: the decoder would take the last of two, leave
// one that is missing at zero, and not mind upper case.
func checkKeys(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return errors.New("the manifest is no JSON object: give the file as `engine restore manifest` wrote it")
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		key, isKey := token.(string)
		if err != nil || !isKey {
			return errors.New("the manifest is no JSON object: give the file as `engine restore manifest` wrote it")
		}
		if seen[key] {
			return fmt.Errorf("the manifest has the key %q twice", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return fmt.Errorf("the manifest is cut off or damaged at the key %q", key)
		}
		if string(value) == "null" {
			return fmt.Errorf("the key %q of the manifest is null", key)
		}
	}
	for _, key := range manifestKeys {
		if !seen[key] {
			return fmt.Errorf("the manifest lacks the key %q", key)
		}
		delete(seen, key)
	}
	for key := range seen {
		return fmt.Errorf("the manifest has the key %q, which this version does not know", key)
	}
	return nil
}

// check refuses values that no database has.
func (m Manifest) check() error {
	switch {
	case m.Version != ManifestVersion:
		return fmt.Errorf("the manifest has version %d, and this binary reads version %d", m.Version, ManifestVersion)
	case m.SyncEpoch == "":
		return errors.New("sync_epoch of the manifest is empty")
	case m.HeadSeq < 0 || m.AuditSeq < 0:
		return errors.New("a number of the manifest is below 0")
	}
	if _, err := hex.DecodeString(m.AuditHash); err != nil {
		return fmt.Errorf("audit_hash of the manifest is %q, which is not hexadecimal", m.AuditHash)
	}
	return nil
}

// Identity is the server that the manifest was taken on.
func (m Manifest) Identity() round.Identity {
	return round.Identity{System: m.SystemIdentifier, Timeline: m.TimelineID}
}

// Difference is one field in which a database and a manifest differ.
type Difference struct {
	Field    string `json:"field"`
	Manifest string `json:"manifest"`
	Database string `json:"database"`
}

func (d Difference) String() string {
	return fmt.Sprintf("%s is %s in the manifest and %s in the database", d.Field, orNothing(d.Manifest), orNothing(d.Database))
}

func orNothing(text string) string {
	if text == "" {
		return "empty"
	}
	return text
}

// Differences compares a database with the manifest of its final backup: the place in the log and the event there,
// the newest row of the audit and the epoch. A counter that does not fit its log differs too, whatever it says.
func (m Manifest) Differences(s State) []Difference {
	var all []Difference
	compare := func(field, manifest, database string) {
		if manifest != database {
			all = append(all, Difference{field, manifest, database})
		}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	if s.Stored.Known() { // until it is finalized a copy says where it comes from
		compare("system_identifier", number(m.SystemIdentifier), number(s.Stored.System))
	}
	compare("sync_epoch", m.SyncEpoch, s.Epoch)
	compare("head_seq", number(m.HeadSeq), number(s.Head()))
	compare("head_event", m.HeadEvent, s.HeadEvent)
	compare("audit_seq", number(m.AuditSeq), number(s.Audit.Seq))
	compare("audit_hash", m.AuditHash, hex.EncodeToString(s.Audit.Hash))
	compare("environment", m.Environment, s.Environment)
	if s.Audit.Flaw != "" {
		all = append(all, Difference{"audit", "sound", s.Audit.Flaw})
	}
	for _, flaw := range s.Flaws() {
		all = append(all, Difference{string(flaw.Kind), "nothing of the kind", flaw.String()})
	}
	return all
}
