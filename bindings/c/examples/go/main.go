// A store from Go: puts, gets, a scan and an error.
//
//	PKG_CONFIG_PATH=PREFIX/lib/pkgconfig LD_LIBRARY_PATH=PREFIX/lib go run . /tmp/shop
package main

/*
#cgo pkg-config: terracedb
#include <stdlib.h>
#include <terracedb.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"log"
	"os"
	"unsafe"
)

// check frees an error of the library and returns it as Go's.
func check(failed *C.tdb_error) error {
	if failed == nil {
		return nil
	}
	defer C.tdb_error_free(failed)
	return errors.New(C.GoString(C.tdb_error_message(failed)))
}

// pointer is the first byte of `bytes`: the library takes NULL for no bytes.
func pointer(bytes []byte) *C.uint8_t {
	return (*C.uint8_t)(unsafe.SliceData(bytes))
}

type keyspace struct{ handle *C.tdb_keyspace }

func (k keyspace) put(key, value []byte) error {
	return check(C.tdb_put(k.handle, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)),
		0, C.TDB_DURABILITY_DEFAULT))
}

// get copies the value out of the store's memory; nil means that there is none.
func (k keyspace) get(key []byte) ([]byte, error) {
	var value C.tdb_bytes
	if err := check(C.tdb_get(k.handle, pointer(key), C.size_t(len(key)), &value)); err != nil {
		return nil, err
	}
	if value.data == nil {
		return nil, nil
	}
	defer C.tdb_bytes_free(&value)
	return C.GoBytes(unsafe.Pointer(value.data), C.int(value.len)), nil
}

// scan calls `each` with every entry in key order.
func (k keyspace) scan(each func(key, value []byte)) error {
	var entries *C.tdb_iter
	if err := check(C.tdb_iterate(k.handle, nil, 0, nil, 0, false, &entries)); err != nil {
		return err
	}
	defer C.tdb_iter_free(entries)
	for {
		var entry C.tdb_entry
		var found C.bool
		if err := check(C.tdb_iter_next(entries, &entry, &found)); err != nil || !bool(found) {
			return err
		}
		each(C.GoBytes(unsafe.Pointer(entry.key), C.int(entry.key_len)),
			C.GoBytes(unsafe.Pointer(entry.value), C.int(entry.value_len)))
	}
}

func run(directory string) error {
	path, name := C.CString(directory), C.CString("users")
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(name))
	var db *C.tdb_db
	if err := check(C.tdb_open(path, nil, &db)); err != nil {
		return err
	}
	var users keyspace
	if err := check(C.tdb_keyspace_open(db, name, true, nil, nil, &users.handle)); err != nil {
		return err
	}
	for user, city := range map[string]string{"ada": "London", "bob": "Rome"} {
		if err := users.put([]byte(user), []byte(city)); err != nil {
			return err
		}
	}
	city, err := users.get([]byte("bob"))
	if err != nil {
		return err
	}
	missing, err := users.get([]byte("eve"))
	if err != nil {
		return err
	}
	fmt.Printf("bob: %s, eve: %v\n", city, missing)
	if err := users.scan(func(key, value []byte) { fmt.Printf("%s = %s\n", key, value) }); err != nil {
		return err
	}
	fmt.Println("no key:", users.put(nil, []byte("value")))
	// The handle of a keyspace keeps the directory locked.
	C.tdb_keyspace_free(users.handle)
	return check(C.tdb_close(db))
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: shop DIRECTORY")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
