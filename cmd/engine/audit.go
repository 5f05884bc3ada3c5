// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
)

func auditCommand(env lookupEnv) *cobra.Command {
	return group("audit", "shows what was done to the installation, and proves that nobody changed the record",
		`audit reads the record of what was done to the installation: cursors that were made, moved or removed, restores
that were finalized. Each row carries the hash of the row before it.`,
		`  engine audit list
  engine audit verify --manifest manifest.json`,
		auditVerifyCommand(env), auditListCommand(env))
}

func auditVerifyCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "proves that no row of the audit was changed, removed or put in",
		Long: `verify works out the hash of every row anew, here and not in the database, and follows the chain. It names the
rows and tells apart:

  changed        a row no longer says what was written
  removed        rows are missing between others
  tail_removed   the newest rows are missing
  above_counter  sound rows that the counter has not given: it was put back, or they were put in
  forged         a row was put in from outside
  rewritten      the audit is sound in itself, and not the one of the manifest

Who can write to the database and knows the chain can cut off its end together with the counter, or write all of it
anew. Only what is kept elsewhere shows that: the manifest that engine restore manifest writes. Keep one outside of
the database, and give it here.

It works as database.url while the engine runs and changes nothing. It exits with 0 when the audit is sound, and with 1
when it is not.`,
		Example: `  engine audit verify
  engine audit verify --manifest manifest.json --format json`,
		Args: arguments(),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	manifest := cmd.Flags().String("manifest", "", "compare with the manifest in `FILE`; - is standard input")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFormat(*format); err != nil {
			return err
		}
		if *path == "-" && *manifest == "-" {
			return errOneInput
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		var text []byte
		if *manifest != "" {
			if text, err = manifestText(cmd, *manifest); err != nil {
				return err
			}
		}
		verdict, err := engine.VerifyAudit(cmd.Context(), cfg, text)
		if err != nil {
			return err
		}
		if *format == "json" {
			err = printJSON(cmd.OutOrStdout(), verdict)
		} else {
			err = printVerdict(cmd.OutOrStdout(), verdict)
		}
		if err == nil && !verdict.Sound {
			err = errReported
		}
		return err
	}
	return cmd
}

// printVerdict prints a verdict for people.
func printVerdict(to io.Writer, v engine.AuditVerdict) error {
	known := true // what to do about every one of them
	for _, f := range v.Flaws {
		fmt.Fprintf(to, "wrong  %s [%s]\n", f.What, f.Code)
		if f.Do != "" {
			fmt.Fprintf(to, "       do: %s\n", f.Do)
		}
		known = known && f.Do != ""
	}
	if !v.Sound {
		_, err := fmt.Fprintf(to, "\nthe audit is not sound: %s\n", count(len(v.Flaws), "flaw"))
		if known || err != nil {
			return err
		}
		_, err = fmt.Fprintln(to, "do: find out who may change the database, and compare with a backup; a row that is wrong cannot be put right")
		return err
	}
	against := ""
	if v.Manifest != nil {
		against = fmt.Sprintf(", and row %d is that of the manifest", *v.Manifest)
		if *v.Manifest == 0 {
			against = ", and the manifest was written before its first row"
		}
	}
	if v.Rows == 0 {
		_, err := fmt.Fprintln(to, "the audit is sound: it has no row yet"+against)
		return err
	}
	_, err := fmt.Fprintf(to, "the audit is sound: %s, the newest is %d%s\nits hash is %s\n", count(v.Rows, "row"), v.Seq, against, v.Hash)
	return err
}

func auditListCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "prints the rows of the audit, oldest first",
		Long: `list prints what was done to the installation: when, by which role of the database, and to what. --format json
prints one object for each row, with its hash.`,
		Example: `  engine audit list --from 100
  engine audit list --format json | jq 'select(.action | startswith("instance."))'`,
		Args: arguments(),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	from := cmd.Flags().Int64("from", 1, "begin at the row `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFormat(*format); err != nil {
			return err
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		if *format == "json" {
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetEscapeHTML(false)
			return engine.ListAudit(cmd.Context(), cfg, *from, func(e engine.AuditEntry) error { return encoder.Encode(e) })
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "SEQ\tAT\tACTION\tSUBJECT\tACTOR\tDETAILS")
		err = engine.ListAudit(cmd.Context(), cfg, *from, func(e engine.AuditEntry) error {
			_, err := fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", e.Seq, e.At.Format(time.RFC3339), e.Action, shownName(e.Subject), shownName(e.Actor), shownName(string(e.Details)))
			return err
		})
		if err != nil {
			return err
		}
		return table.Flush()
	}
	return cmd
}

// shownName is a text in one cell: what would break the table or turn it round stands in it as in a Go string.
func shownName(text string) string {
	if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strconv.Quote(text)
	}
	return text
}
