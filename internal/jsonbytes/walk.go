package jsonbytes

import (
	"encoding"
	"encoding/json"
	"reflect"
)

// walk changes all text that encoding/json sees in a value.
type walk struct {
	text   func(string) string
	raw    func([]byte) []byte // of a json.RawMessage
	copies bool                // copy the targets of pointers, slices and maps before a change, because they belong to the caller
}

var (
	rawMessage    = reflect.TypeFor[json.RawMessage]()
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// value changes a value that can be set.
func (w walk) value(v reflect.Value) {
	t := v.Type()
	switch {
	case t == rawMessage && v.CanSet():
		v.SetBytes(w.raw(v.Bytes()))
		return
	case t.Implements(marshaler), t.Implements(textMarshaler):
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(w.text(v.String()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if t.Field(i).Tag.Get("json") != "-" {
				w.value(v.Field(i)) // also of an embedded struct with a lower-case name, because its fields may be exported
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			w.value(v.Index(i))
		}
	case reflect.Slice:
		w.slice(v)
	case reflect.Map:
		w.keys(v)
	case reflect.Pointer, reflect.Interface:
		w.behind(v)
	}
}

func (w walk) slice(v reflect.Value) {
	if v.Len() == 0 || !v.CanSet() || v.Type().Elem().Kind() == reflect.Uint8 {
		return
	}
	if w.copies {
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		v.Set(own)
	}
	for i := range v.Len() {
		w.value(v.Index(i))
	}
}

// keys changes the keys and values of a map. It replaces the map, because neither can be changed in place.
func (w walk) keys(v reflect.Value) {
	if v.IsNil() || !v.CanSet() {
		return
	}
	own := reflect.MakeMapWithSize(v.Type(), v.Len())
	for each := v.MapRange(); each.Next(); {
		key, value := settable(each.Key()), settable(each.Value())
		w.value(key)
		w.value(value)
		own.SetMapIndex(key, value)
	}
	v.Set(own)
}

// behind changes the value that a pointer or an interface refers to.
func (w walk) behind(v reflect.Value) {
	switch {
	case v.IsNil() || !v.CanSet():
	case v.Kind() == reflect.Interface:
		inner := settable(v.Elem())
		w.value(inner)
		v.Set(inner)
	case w.copies:
		own := reflect.New(v.Type().Elem())
		own.Elem().Set(v.Elem())
		w.value(own.Elem())
		v.Set(own)
	default:
		w.value(v.Elem())
	}
}

// settable returns a copy that can be set.
func settable(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}
