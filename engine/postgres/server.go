// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
)

// The PostgreSQL versions that the engine is tested on.
const (
	OldestServer = 15
	NewestServer = 18
)

// Server is what a server says of itself to one connection.
type Server struct {
	Version  int    // 15
	Encoding string // of the database
	Standby  bool
	Role     string // the connecting one
	Database string
}

func readServer(ctx context.Context, conn Querier) (Server, error) {
	var s Server
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding'),
	pg_catalog.pg_is_in_recovery(), current_user::text, current_database()::text`).
		Scan(&s.Version, &s.Encoding, &s.Standby, &s.Role, &s.Database)
	return s, failed("ask the server for its version", err)
}

// TooOld reports whether the engine cannot run on the server.
func (s Server) TooOld() bool { return s.Version < OldestServer }

// TooNew reports whether the engine was never tested on the server.
func (s Server) TooNew() bool { return s.Version > NewestServer }

// check refuses a server on which the engine cannot live.
func (s Server) check() error {
	switch {
	case s.TooOld():
		return fmt.Errorf("the server is PostgreSQL %d: version %d or newer is needed", s.Version, OldestServer)
	case s.Encoding != "UTF8":
		return fmt.Errorf("the database has the encoding %s: events need one with UTF8, so create another database with ENCODING 'UTF8' TEMPLATE template0", s.Encoding)
	case s.Standby:
		return errors.New("the server is a standby and takes no changes: connect to the primary")
	default:
		return nil
	}
}
