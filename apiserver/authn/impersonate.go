package authn

import (
	"net/http"
	"net/url"
	"strings"
)

// The headers of impersonation, as the Kubernetes API defines them.
const (
	headerUser  = "Impersonate-User"
	headerGroup = "Impersonate-Group"
	headerUID   = "Impersonate-Uid"
	headerExtra = "Impersonate-Extra-"

	headerPrefix = "Impersonate-"
)

// Impersonated returns the user whom the request asks to act as, or nil if it does not ask. ok is
// false if the headers ask for groups, a uid or extra values without naming a user.
//
// Whether the caller may act so is the authorizer's question: see Aspects.
func Impersonated(h http.Header) (u *User, ok bool) {
	if !impersonates(h) {
		return nil, true
	}
	name, groups := h.Get(headerUser), h.Values(headerGroup)
	extra := extras(h)
	if name == "" {
		return nil, len(groups) == 0 && len(extra) == 0 && h.Get(headerUID) == ""
	}
	u = &User{Name: name, UID: h.Get(headerUID), Groups: append([]string(nil), groups...), Extra: extra}
	if len(groups) == 0 {
		u.Groups = impliedGroups(name)
	}
	if name == Anonymous {
		return u.with(Unauthenticated), true
	}
	return u.with(Authenticated), true
}

// impersonates says whether any header is about it, which in nearly all requests none is.
func impersonates(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, headerPrefix) {
			return true
		}
	}
	return false
}

// impliedGroups are those of a service account, which come with its name.
func impliedGroups(name string) []string {
	rest, ok := strings.CutPrefix(name, serviceAccountPrefix)
	if !ok {
		return nil
	}
	namespace, _, ok := strings.Cut(rest, ":")
	if !ok {
		return nil
	}
	return []string{serviceAccounts, serviceAccounts + ":" + namespace}
}

func extras(h http.Header) map[string][]string {
	var extra map[string][]string
	for name, values := range h {
		key, ok := strings.CutPrefix(name, headerExtra)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if decoded, err := url.PathUnescape(key); err == nil {
			key = decoded
		}
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = append(extra[key], values...)
	}
	return extra
}

// Aspect is one thing that an impersonator must be allowed: the verb "impersonate" on Resource,
// which is "users", "groups", "uids", "serviceaccounts" or "userextras".
type Aspect struct {
	Group, Resource, Subresource string
	Namespace, Name              string
}

// Aspects lists what acting as the user touches. Groups that follow from the name need no
// permission of their own.
func Aspects(h http.Header) []Aspect {
	var all []Aspect
	name := h.Get(headerUser)
	namespace, account, isAccount := strings.Cut(strings.TrimPrefix(name, serviceAccountPrefix), ":")
	if isAccount && strings.HasPrefix(name, serviceAccountPrefix) {
		all = append(all, Aspect{Resource: "serviceaccounts", Namespace: namespace, Name: account})
	} else {
		all = append(all, Aspect{Resource: "users", Name: name})
	}
	for _, group := range h.Values(headerGroup) {
		all = append(all, Aspect{Resource: "groups", Name: group})
	}
	const group = "authentication.k8s.io"
	if uid := h.Get(headerUID); uid != "" {
		all = append(all, Aspect{Group: group, Resource: "uids", Name: uid})
	}
	for key, values := range extras(h) {
		for _, value := range values {
			all = append(all, Aspect{Group: group, Resource: "userextras", Subresource: key, Name: value})
		}
	}
	return all
}
