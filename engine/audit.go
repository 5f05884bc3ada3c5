// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
)

// AuditFlaw is one thing that is wrong with the audit.
type AuditFlaw struct {
	Code  postgres.AuditFlawCode `json:"code"`
	First int64                  `json:"first"` // the first row that it is about
	Last  int64                  `json:"last"`  // the last one
	What  string                 `json:"what"`
	Do    string                 `json:"do,omitempty"` // where anything can be done about it
}

// AuditVerdict is what the verification of the audit found.
type AuditVerdict struct {
	Sound    bool        `json:"sound"`
	Rows     int64       `json:"rows"`
	Seq      int64       `json:"audit_seq"`  // the newest row
	Hash     string      `json:"audit_hash"` // its hash, in hexadecimal
	Manifest *int64      `json:"manifest"`   // the row of the manifest that it was compared with, or null
	Flaws    []AuditFlaw `json:"flaws"`
}

// AuditEntry is one row of the audit, for people.
type AuditEntry struct {
	Seq     int64           `json:"seq"`
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Client  string          `json:"client"`
	Action  string          `json:"action"`
	Subject string          `json:"subject"`
	Details json.RawMessage `json:"details"`
	Hash    string          `json:"hash"`
}

// VerifyAudit follows the chain of the audit and reports every break. With a manifest, the text of the file that `engine
// restore manifest` wrote (nil for none), it also tells that the end of the audit is gone or that it was written anew. It
// changes nothing. An error is one of looking; what is wrong with the audit is a flaw.
func VerifyAudit(ctx context.Context, cfg *config.Config, manifest []byte) (AuditVerdict, error) {
	v := AuditVerdict{Flaws: []AuditFlaw{}}
	var head *postgres.AuditHead
	if manifest != nil {
		read, err := auditHeadOf(manifest)
		if err != nil {
			return v, err
		}
		head, v.Manifest = &read, &read.Seq
	}
	report, err := postgres.VerifyAudit(ctx, cfg.Database.URL.Reveal(), cfg.Database.Schema, head)
	if err != nil {
		return v, err
	}
	v.Sound, v.Rows, v.Seq, v.Hash = len(report.Flaws) == 0, report.Rows, report.Head.Seq, hex.EncodeToString(report.Head.Hash)
	for _, f := range report.Flaws {
		flaw := AuditFlaw{Code: f.Code, First: f.First, Last: f.Last, What: f.String()}
		if f.Code == postgres.AuditAbove {
			flaw.Do = "when audit_seq is older than audit_events, and nothing else is wrong, the owner of the schema runs: " +
				postgres.SetAuditCounter(cfg.Database.Schema, report.Head.Seq)
		}
		v.Flaws = append(v.Flaws, flaw)
	}
	return v, nil
}

// auditHeadOf reads from a manifest what it says of the audit. Whatever else it holds is not looked at.
func auditHeadOf(manifest []byte) (postgres.AuditHead, error) {
	var fields struct {
		Seq  *int64  `json:"audit_seq"`
		Hash *string `json:"audit_hash"`
	}
	if err := json.Unmarshal(manifest, &fields); err != nil {
		return postgres.AuditHead{}, fmt.Errorf("the manifest is no JSON: %w: give the file that `engine restore manifest` wrote", err)
	}
	if fields.Seq == nil || fields.Hash == nil || *fields.Seq < 0 {
		return postgres.AuditHead{}, errors.New("the manifest does not say audit_seq and audit_hash: give the file that `engine restore manifest` wrote")
	}
	hash, err := hex.DecodeString(*fields.Hash)
	if err != nil || len(hash) != 32 && (*fields.Seq > 0 || len(hash) > 0) {
		return postgres.AuditHead{}, fmt.Errorf("audit_hash of the manifest is %q: it must be 64 hexadecimal digits", *fields.Hash)
	}
	return postgres.AuditHead{Seq: *fields.Seq, Hash: hash}, nil
}

// ListAudit hands the rows of the audit to each, oldest first, from the number from on.
func ListAudit(ctx context.Context, cfg *config.Config, from int64, each func(AuditEntry) error) error {
	return postgres.ListAudit(ctx, cfg.Database.URL.Reveal(), cfg.Database.Schema, from, func(r postgres.AuditRow) error {
		return each(AuditEntry{
			Seq: r.Seq, At: r.At.UTC(), Actor: r.Actor, Client: r.Client, Action: r.Action, Subject: r.Subject,
			Details: json.RawMessage(r.Details), Hash: hex.EncodeToString(r.Hash),
		})
	})
}
