// SPDX-License-Identifier: Apache-2.0

package main

import (
	"example.com/bothy/engine"
	"example.com/bothy/engine/finalize"
	"example.com/bothy/engine/restore"
	"example.com/bothy/engine/round"
)

// identityJSON is an identity for programs. The system identifier is a text: it does not fit into the numbers of every
// JSON reader. It is null where nothing is known.
type identityJSON struct {
	System   int64 `json:"system_identifier,string"`
	Timeline int64 `json:"timeline_id"`
}

func identityOf(i round.Identity) *identityJSON {
	if !i.Known() {
		return nil
	}
	return &identityJSON{i.System, i.Timeline}
}

// restoreFacts are what plan, status and finalize tell alike.
type restoreFacts struct {
	Stored      *identityJSON `json:"stored"`
	Current     *identityJSON `json:"current"`
	Environment string        `json:"environment"`
	Head        int64         `json:"head"`
}

func factsOf(s restore.State) restoreFacts {
	return restoreFacts{identityOf(s.Stored), identityOf(s.Current), s.Environment, s.Head()}
}

// none is an empty list for programs, never null.
func none[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

type finalizeJSON struct {
	End     string `json:"end"`
	Failure string `json:"failure"`
	Changed bool   `json:"changed"`
	restoreFacts

	EpochFrom   string               `json:"epoch_from"`
	EpochTo     string               `json:"epoch_to"`
	Audit       int64                `json:"audit"`
	Abandoned   *restore.Range       `json:"abandoned"`
	Cursors     []restore.Moved      `json:"cursors"`
	JobsRule    restore.JobsRule     `json:"jobs_rule"`
	Jobs        []restore.JobCount   `json:"jobs"`
	Quarantine  restore.Aside        `json:"quarantine"`
	Repaired    []restore.Flaw       `json:"repaired"`
	Sessions    []restore.Session    `json:"sessions"`
	Differences []restore.Difference `json:"differences"`
}

func finalizeOf(r engine.FinalizeReport) finalizeJSON {
	facts := factsOf(r.State)
	if r.Environment != "" {
		facts.Environment = r.Environment
	}
	return finalizeJSON{
		End: r.End.Name, Failure: r.End.Failure, Changed: r.Done(), restoreFacts: facts,
		EpochFrom: r.EpochFrom, EpochTo: r.EpochTo, Audit: r.Deed, Abandoned: finalize.Abandoned(r.Moved),
		Cursors: none(r.Moved), JobsRule: r.JobsRule, Jobs: none(r.Jobs), Quarantine: r.State.Aside, Repaired: none(r.Flaws),
		Sessions: none(r.Sessions), Differences: none(r.Differences),
	}
}

type restorePlanJSON struct {
	Answer   string          `json:"answer"`
	NewEpoch bool            `json:"new_epoch"`
	Verdict  restore.Verdict `json:"verdict"`
	restoreFacts

	Epoch      string             `json:"epoch"`
	Abandoned  *restore.Range     `json:"abandoned"`
	Cursors    []restore.Moved    `json:"cursors"`
	JobsRule   restore.JobsRule   `json:"jobs_rule"`
	Jobs       []restore.JobCount `json:"jobs"`
	Quarantine restore.Aside      `json:"quarantine"`
	Flaws      []restore.Flaw     `json:"flaws"`
	Sessions   []restore.Session  `json:"sessions"`
}

func restorePlanOf(p engine.RestorePlan) restorePlanJSON {
	plan := restorePlanJSON{
		Answer: p.Answer, NewEpoch: p.NewEpoch(), Verdict: p.Verdict, restoreFacts: factsOf(p.State), Epoch: p.State.Epoch,
		JobsRule: p.JobsRule, Jobs: none(p.Jobs), Quarantine: p.State.Aside, Flaws: none(p.Flaws), Sessions: none(p.Sessions), Cursors: []restore.Moved{},
	}
	if p.NewEpoch() {
		plan.Abandoned, plan.Cursors = finalize.Abandoned(p.Moves), none(p.Moves)
	}
	return plan
}

type restoreStatusJSON struct {
	Finalized bool            `json:"finalized"`
	Verdict   restore.Verdict `json:"verdict"`
	restoreFacts

	Epoch   string           `json:"epoch"`
	Guarded bool             `json:"guarded"`
	Flaws   []restore.Flaw   `json:"flaws"`
	Last    *engine.LastDeed `json:"last"`
}

func restoreStatusOf(p engine.RestorePlan, last *engine.LastDeed, guarded bool) restoreStatusJSON {
	return restoreStatusJSON{p.Answer == "same", p.Verdict, factsOf(p.State), p.State.Epoch, guarded, none(p.Flaws), last}
}
