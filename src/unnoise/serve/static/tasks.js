// Fresh reports appear without reload: the first news is what the page shows already.
import { listen } from "./news.js";

let shown;
listen(({ data }) => {
  if (shown !== undefined && shown !== data) location.reload();
  shown = data;
});
