// Package lines answers one JSON object a line with one answer a line.
package lines

import (
	"bufio"
	"encoding/json"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// longest is the most bytes of one object: etcd takes no larger ones.
const longest = 4 << 20

// Answer is the health of one object.
type Answer struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// Each reads objects until the input ends and writes the answer of evaluate for each. It ends at the first error.
func Each(in io.Reader, out io.Writer, evaluate func(*unstructured.Unstructured) (Answer, error)) error {
	answers := json.NewEncoder(out)
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, longest)
	for scanner.Scan() {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(scanner.Bytes()); err != nil {
			return err
		}
		answer, err := evaluate(object)
		if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return scanner.Err()
}
