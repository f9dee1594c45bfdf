  // The filter of each domain: clusters and members whose names do not contain the text are hidden.

  for (const input of document.querySelectorAll("input[data-filter]")) {
    const section = document.getElementById(input.dataset.filter);
    input.addEventListener("input", () => {
      const key = input.value.trim().toLowerCase();
      for (const row of section.querySelectorAll("tbody tr")) {
        let found = 0;
        for (const member of row.querySelectorAll("li")) {
          const here = member.firstElementChild.textContent.toLowerCase().includes(key);
          member.hidden = !here;
          found += here;
        }
        row.hidden = found === 0;
        const details = row.querySelector("details");
        if (details) details.open = key !== "" && found > 0;
      }
    });
  }
